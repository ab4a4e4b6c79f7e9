package dynamodb

import (
	"math/big"
	"strconv"
	"strings"
)

// Limits of the number type.
const (
	maxDigits   = 38
	maxExponent = 125  // of the first digit
	minExponent = -130 // of the first digit
)

// number is 0.d₁d₂… × 10^point with the sign, digits without zeros at either end. Zero has no digits.
type number struct {
	negative bool
	digits   string
	point    int
}

// parseNumber reads a decimal number, and refuses what the number type can't hold.
func parseNumber(text string) (number, *apiError) {
	bad := func() (number, *apiError) {
		return number{}, invalid("The parameter cannot be converted to a numeric value: %s", text)
	}
	s := text
	var n number
	switch {
	case strings.HasPrefix(s, "-"):
		n.negative, s = true, s[1:]
	case strings.HasPrefix(s, "+"):
		s = s[1:]
	}
	exponent := 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, err := strconv.Atoi(s[i+1:])
		if err != nil || e > 10_000 || e < -10_000 {
			return bad()
		}
		exponent, s = e, s[:i]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	if whole == "" && fraction == "" {
		return bad()
	}
	digits := whole + fraction
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return bad()
		}
	}
	return normal(n.negative, digits, len(whole)+exponent)
}

// normal strips zeros and checks the limits.
func normal(negative bool, digits string, point int) (number, *apiError) {
	trimmed := strings.TrimLeft(digits, "0")
	point -= len(digits) - len(trimmed)
	trimmed = strings.TrimRight(trimmed, "0")
	switch {
	case trimmed == "":
		return number{}, nil
	case len(trimmed) > maxDigits:
		return number{}, invalid("Attempting to store more than 38 significant digits in a Number")
	case point-1 > maxExponent:
		return number{}, invalid("Number overflow. Attempting to store a number with magnitude larger than supported range")
	case point-1 < minExponent:
		return number{}, invalid("Number underflow. Attempting to store a number with magnitude smaller than supported range")
	}
	return number{negative, trimmed, point}, nil
}

// String is the plain decimal form, without exponent.
func (n number) String() string {
	if n.digits == "" {
		return "0"
	}
	var s string
	switch {
	case n.point <= 0:
		s = "0." + strings.Repeat("0", -n.point) + n.digits
	case n.point >= len(n.digits):
		s = n.digits + strings.Repeat("0", n.point-len(n.digits))
	default:
		s = n.digits[:n.point] + "." + n.digits[n.point:]
	}
	if n.negative {
		return "-" + s
	}
	return s
}

// ordered is a form whose byte order is the order of the numbers.
func (n number) ordered() string {
	if n.digits == "" {
		return "\x01"
	}
	biased := uint16(n.point + 0x4000)
	b := append([]byte{2, byte(biased >> 8), byte(biased)}, n.digits...)
	if !n.negative {
		return string(b)
	}
	b[0] = 0
	for i := 1; i < len(b); i++ {
		b[i] = ^b[i]
	}
	// A longer negative number is the smaller one: the end must weigh more than any digit.
	return string(append(b, 0xff))
}

// add returns n + m, or n - m.
func (n number) add(m number, subtract bool) (number, *apiError) {
	if subtract {
		m.negative = !m.negative
	}
	scale := min(n.point-len(n.digits), m.point-len(m.digits))
	sum := n.scaled(scale)
	sum.Add(sum, m.scaled(scale))
	digits := new(big.Int).Abs(sum).String()
	return normal(sum.Sign() < 0, digits, len(digits)+scale)
}

// scaled returns n / 10^scale, which must be whole.
func (n number) scaled(scale int) *big.Int {
	if n.digits == "" {
		return new(big.Int)
	}
	i, _ := new(big.Int).SetString(n.digits+strings.Repeat("0", n.point-len(n.digits)-scale), 10)
	if n.negative {
		i.Neg(i)
	}
	return i
}

// size is what a number counts for in an item's size: two digits a byte, and one or two for sign and exponent.
func (n number) size() int {
	s := (len(n.digits)+1)/2 + 1
	if n.negative {
		s++
	}
	return s
}
