package wire

import (
	"bytes"
	"strings"
)

// endsInCommit reports whether the last statement of an SQL text is a commit. It knows quotes and comments,
// so that a commit inside a literal is not taken for one.
func endsInCommit(text []byte) bool {
	words := lastStatement(text)
	if len(words) == 0 || len(words) > 4 {
		return false
	}
	switch strings.ToLower(strings.Join(words, " ")) {
	case "commit", "commit work", "commit transaction", "commit and no chain",
		"commit work and no chain", "end", "end work", "end transaction", "commit and chain":
		return true
	}
	return false
}

// lastStatement returns up to five words of the last statement that is not empty.
func lastStatement(text []byte) []string {
	var last, words []string
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == ';':
			if len(words) > 0 {
				last, words = words, nil
			}
			i++
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
			i++
		case bytes.HasPrefix(text[i:], []byte("--")):
			i = after(text, i+2, "\n")
		case bytes.HasPrefix(text[i:], []byte("/*")):
			i = afterComment(text, i+2)
		default:
			end := wordEnd(text, i)
			if len(words) < 5 {
				words = append(words, string(text[i:end]))
			}
			i = end
		}
	}
	if len(words) > 0 {
		return words
	}
	return last
}

// wordEnd returns where the word, or the quoted text, that begins at i ends.
func wordEnd(text []byte, i int) int {
	switch c := text[i]; {
	case c == '\'':
		escapes := i > 0 && (text[i-1] == 'e' || text[i-1] == 'E')
		return quoteEnd(text, i+1, '\'', escapes)
	case c == '"':
		return quoteEnd(text, i+1, '"', false)
	case c == '$':
		if tag := dollarTag(text[i:]); tag != "" {
			return after(text, i+len(tag), tag)
		}
		return i + 1
	case wordByte(c):
		for i < len(text) && (wordByte(text[i]) || text[i] == '$') {
			i++
		}
		return i
	}
	return i + 1
}

func wordByte(c byte) bool {
	return c == '_' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func quoteEnd(text []byte, i int, quote byte, escapes bool) int {
	for i < len(text) {
		switch {
		case escapes && text[i] == '\\':
			i += 2
		case text[i] == quote && i+1 < len(text) && text[i+1] == quote:
			i += 2
		case text[i] == quote:
			return i + 1
		default:
			i++
		}
	}
	return len(text)
}

// dollarTag returns the opening tag of a dollar-quoted text, or "".
func dollarTag(text []byte) string {
	for i := 1; i < len(text); i++ {
		if text[i] == '$' {
			return string(text[:i+1])
		}
		if !wordByte(text[i]) || i == 1 && '0' <= text[i] && text[i] <= '9' {
			return ""
		}
	}
	return ""
}

func after(text []byte, i int, mark string) int {
	if n := bytes.Index(text[min(i, len(text)):], []byte(mark)); n >= 0 {
		return i + n + len(mark)
	}
	return len(text)
}

// afterComment returns the end of a comment; they nest.
func afterComment(text []byte, i int) int {
	for depth := 1; i < len(text); {
		switch {
		case bytes.HasPrefix(text[i:], []byte("*/")):
			i += 2
			if depth--; depth == 0 {
				return i
			}
		case bytes.HasPrefix(text[i:], []byte("/*")):
			i += 2
			depth++
		default:
			i++
		}
	}
	return len(text)
}
