package reports

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// count writes a whole number with thousands separators.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	if neg {
		return "-" + b.String()
	}
	return b.String()
}

// duration writes seconds with three significant digits and a fitting unit.
func duration(s float64) string {
	a := math.Abs(s)
	switch {
	case s == 0:
		return "0"
	case a < 1e-3:
		return significant(s*1e6) + " µs"
	case a < 0.9995:
		return significant(s*1e3) + " ms"
	case a < 120:
		return significant(s) + " s"
	default:
		return clockTime(s)
	}
}

// clockTime writes a long duration as 3m04s.
func clockTime(s float64) string {
	sign := ""
	if s < 0 {
		sign, s = "-", -s
	}
	if s < 60 {
		return sign + strconv.FormatFloat(s, 'f', 1, 64) + "s"
	}
	t := int64(math.Round(s))
	if t < 3600 {
		return fmt.Sprintf("%s%dm%02ds", sign, t/60, t%60)
	}
	return fmt.Sprintf("%s%dh%02dm%02ds", sign, t/3600, t/60%60, t%60)
}

// significant writes three significant digits without an exponent.
func significant(v float64) string {
	a := math.Abs(v)
	switch {
	case a == 0:
		return "0"
	case a < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
}

// rate writes a number per second.
func rate(v float64) string {
	if v >= 1000 {
		return count(int64(math.Round(v)))
	}
	return significant(v)
}

// percent writes a share.
func percent(v float64) string { return strconv.FormatFloat(v*100, 'f', 1, 64) + " %" }

// bytesize writes a number of bytes.
func bytesize(n float64) string {
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if n < 1024 {
			return significant(n) + " " + unit
		}
		n /= 1024
	}
	return significant(n) + " TiB"
}
