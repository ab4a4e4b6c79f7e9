package reports

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// svg writes one picture. Everything that matters is a presentation attribute, so that it survives a policy
// that drops styles; classes only let the page's style sheet change colours for the dark. Equal calls give
// equal bytes.
type svg struct {
	b      strings.Builder
	w, h   float64
	closed bool
}

// ink is one colour with its class.
type ink struct{ class, light string }

var (
	inkText   = ink{"ink-text", "#1c2430"}
	inkMuted  = ink{"ink-muted", "#5a6572"}
	inkGrid   = ink{"ink-grid", "#dde2e8"}
	inkAxis   = ink{"ink-axis", "#8a95a1"}
	inkOK     = ink{"ink-ok", "#1a7f37"}
	inkBad    = ink{"ink-bad", "#c01c28"}
	inkUnsure = ink{"ink-unsure", "#9a6700"}
	inkPlain  = ink{"ink-plain", "#2563a8"}
	inkFault  = ink{"ink-fault", "#b4690e"}
)

// lineInks and lineDashes tell series apart twice: by colour and by pattern.
var (
	lineInks   = []ink{{"ink-a", "#2563a8"}, {"ink-b", "#c2410c"}, {"ink-c", "#1a7f37"}, {"ink-d", "#7c3aed"}}
	lineDashes = []string{"", "7 3", "2 3", "9 3 2 3"}
)

func newSVG(w, h float64, id, title, description string) *svg {
	s := &svg{w: w, h: h}
	fmt.Fprintf(&s.b, `<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="%[1]s-t %[1]s-d" viewBox="0 0 %[2]s %[3]s" width="100%%" font-family="system-ui, sans-serif" font-size="12">`,
		escape(id), px(w), px(h))
	fmt.Fprintf(&s.b, `<title id="%s-t">%s</title><desc id="%s-d">%s</desc>`, escape(id), escape(title), escape(id), escape(description))
	s.b.WriteString("\n")
	return s
}

func escape(s string) string { return template.HTMLEscapeString(plain(s)) }

// px writes a coordinate with at most one decimal.
func px(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10+0, 'f', -1, 64)
}

func (s *svg) rect(x, y, w, h float64, fill ink, more string) {
	fmt.Fprintf(&s.b, `<rect class="%s-f" x="%s" y="%s" width="%s" height="%s" fill="%s"%s/>`+"\n",
		fill.class, px(x), px(y), px(max(w, 0.5)), px(h), fill.light, attrs(more))
}

func (s *svg) line(x1, y1, x2, y2 float64, stroke ink, more string) {
	fmt.Fprintf(&s.b, `<line class="%s-s" x1="%s" y1="%s" x2="%s" y2="%s" stroke="%s"%s/>`+"\n",
		stroke.class, px(x1), px(y1), px(x2), px(y2), stroke.light, attrs(more))
}

func (s *svg) circle(x, y, r float64, fill ink) {
	fmt.Fprintf(&s.b, `<circle class="%s-f" cx="%s" cy="%s" r="%s" fill="%s"/>`+"\n", fill.class, px(x), px(y), px(r), fill.light)
}

func (s *svg) path(points []point, stroke ink, more string) {
	fmt.Fprintf(&s.b, `<path class="%s-s" d="`, stroke.class)
	for i, p := range points {
		if i == 0 {
			s.b.WriteString("M")
		} else {
			s.b.WriteString("L")
		}
		s.b.WriteString(px(p.x) + " " + px(p.y))
	}
	fmt.Fprintf(&s.b, `" fill="none" stroke="%s"%s/>`+"\n", stroke.light, attrs(more))
}

// text writes a string at a baseline; anchor is "start", "middle" or "end".
func (s *svg) text(x, y float64, anchor, str string, fill ink, more string) {
	fmt.Fprintf(&s.b, `<text class="%s-f" x="%s" y="%s" text-anchor="%s" fill="%s"%s>%s</text>`+"\n",
		fill.class, px(x), px(y), anchor, fill.light, attrs(more), escape(str))
}

func attrs(more string) string {
	if more == "" {
		return ""
	}
	return " " + more
}

// html closes the picture.
func (s *svg) html() template.HTML {
	if !s.closed {
		s.closed = true
		s.b.WriteString("</svg>\n")
	}
	return template.HTML(s.b.String()) // every string in it went through escape
}

type point struct{ x, y float64 }

// textWidth estimates the width of a string in the page's font, on the safe side.
func textWidth(s string, size float64) float64 { return float64(len([]rune(s))) * size * 0.58 }

// fit shortens a string to a width.
func fit(s string, room, size float64) string { return clip(s, int(room/(size*0.58))) }

// lanes packs intervals into as few rows as a greedy choice needs, none overlapping in a row.
type lanes struct{ rows [][][2]float64 }

func (l *lanes) place(from, to float64) int {
	for i, row := range l.rows {
		free := true
		for _, o := range row {
			if from < o[1] && o[0] < to {
				free = false
				break
			}
		}
		if free {
			l.rows[i] = append(row, [2]float64{from, to})
			return i
		}
	}
	l.rows = append(l.rows, [][2]float64{{from, to}})
	return len(l.rows) - 1
}
