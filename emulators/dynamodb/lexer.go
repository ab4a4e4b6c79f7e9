package dynamodb

import "strings"

// tokenKind is what a token of an expression is.
type tokenKind uint8

const (
	tokenEnd         tokenKind = iota
	tokenName                  // a bare attribute name, keyword or function
	tokenPlaceholder           // #name
	tokenValue                 // :value
	tokenIndex                 // digits
	tokenSymbol                // punctuation and comparison operators
)

type token struct {
	kind tokenKind
	text string
}

// lex splits an expression into tokens; the last one is the end.
func lex(kindOfExpression, text string) ([]token, *apiError) {
	var out []token
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case isLetter(c):
			end := span(text, i)
			out = append(out, token{tokenName, text[i:end]})
			i = end
		case c == '#' || c == ':':
			end := span(text, i+1)
			if end == i+1 {
				return nil, syntaxError(kindOfExpression, text[i:end])
			}
			k := tokenPlaceholder
			if c == ':' {
				k = tokenValue
			}
			out = append(out, token{k, text[i:end]})
			i = end
		case isDigit(c):
			end := i
			for end < len(text) && isDigit(text[end]) {
				end++
			}
			out = append(out, token{tokenIndex, text[i:end]})
			i = end
		case strings.IndexByte("()[],.=<>+-", c) >= 0:
			end := i + 1
			if two := text[i:min(i+2, len(text))]; two == "<=" || two == ">=" || two == "<>" {
				end++
			}
			out = append(out, token{tokenSymbol, text[i:end]})
			i = end
		default:
			return nil, syntaxError(kindOfExpression, text[i:i+1])
		}
	}
	return append(out, token{kind: tokenEnd, text: "<EOF>"}), nil
}

func syntaxError(kindOfExpression, near string) *apiError {
	return invalid("Invalid %s: Syntax error; token: %q", kindOfExpression, near)
}

// span returns where the word that begins at i ends.
func span(text string, i int) int {
	for i < len(text) && (isLetter(text[i]) || isDigit(text[i])) {
		i++
	}
	return i
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
