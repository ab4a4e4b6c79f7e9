(function () {
  "use strict";
  function openTarget() {
    var el = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (var p = el; p; p = p.parentElement) if (p.tagName === "DETAILS") p.open = true;
    if (el) el.scrollIntoView();
  }
  addEventListener("hashchange", openTarget);
  openTarget();

  document.querySelectorAll(".cmd code").forEach(function (code) {
    if (!navigator.clipboard) return;
    var b = document.createElement("button");
    b.type = "button";
    b.textContent = "copy";
    b.addEventListener("click", function () {
      navigator.clipboard.writeText(code.textContent).then(function () { b.textContent = "copied"; });
    });
    code.after(b);
  });

  var plain = document.querySelectorAll(".matrix tr.plain");
  var matrix = document.querySelector("#matrix .hint");
  if (plain.length && matrix) {
    var tools = document.createElement("span");
    tools.className = "tools";
    var t = document.createElement("button");
    t.type = "button";
    var hidden = false;
    var show = function () {
      t.textContent = hidden ? "show all rows" : "hide the " + plain.length + " rows that hold everywhere";
      plain.forEach(function (r) { r.classList.toggle("hidden", hidden); });
    };
    t.addEventListener("click", function () { hidden = !hidden; show(); });
    tools.append(t);
    matrix.append(tools);
    show();
  }

  function text(v, unit) {
    if (unit !== "s") return v >= 100 ? Math.round(v) + "/s" : v.toPrecision(3) + "/s";
    var a = Math.abs(v);
    if (a >= 1) return v.toPrecision(3) + " s";
    return a >= 1e-3 ? (v * 1e3).toPrecision(3) + " ms" : (v * 1e6).toPrecision(3) + " µs";
  }
  document.querySelectorAll("figure.chart").forEach(function (fig) {
    var svg = fig.querySelector("svg"), out = fig.querySelector("output"), data;
    try { data = JSON.parse(fig.querySelector("script").textContent); } catch (e) { return; }
    var line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    line.setAttribute("class", "ink-axis-s");
    line.setAttribute("stroke", "#8a95a1");
    line.setAttribute("y1", "22");
    line.setAttribute("y2", String(svg.viewBox.baseVal.height - 40));
    line.setAttribute("visibility", "hidden");
    svg.append(line);
    svg.addEventListener("pointermove", function (ev) {
      var box = svg.getBoundingClientRect();
      var x = Math.min(Math.max((ev.clientX - box.left) / box.width * data.width, data.left), data.right);
      var t = (x - data.left) / (data.right - data.left) * data.length;
      line.setAttribute("x1", String(x));
      line.setAttribute("x2", String(x));
      line.setAttribute("visibility", "visible");
      out.textContent = t.toFixed(1) + " s: " + data.lines.map(function (l) {
        var best = null;
        (l.points || []).forEach(function (p) { if (!best || Math.abs(p[0] - t) < Math.abs(best[0] - t)) best = p; });
        return l.name + " " + (best ? text(best[1], data.unit) : "–");
      }).join(" · ");
    });
    svg.addEventListener("pointerleave", function () {
      line.setAttribute("visibility", "hidden");
      out.textContent = "";
    });
  });
})();
