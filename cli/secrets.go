package cli

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const hidden = "xxxxx"

var (
	// userinfo finds what stands before the last @ of a URL, also in one that no parser takes.
	userinfo = regexp.MustCompile(`(://[^/?#:@\s]*):?[^\s]*@`)
	// secretParameter finds passwords in queries and in key=value strings.
	secretParameter = regexp.MustCompile(`(?i)\b(\w*(?:password|passwd|pwd|secret|token)\w*)\s*=\s*('[^']*'|[^&\s]+)`)
)

// maskArg hides the credentials in a piece of a command line.
func maskArg(s string) string {
	if strings.Contains(s, "://") {
		s = userinfo.ReplaceAllString(s, "$1:"+hidden+"@")
	}
	return secretParameter.ReplaceAllString(s, "$1="+hidden)
}

// maskArgs hides credentials in what is written down of the command line. The value of --endpoint that is not a URL
// may be anything, and so is hidden whole.
func maskArgs(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		switch value, ok := strings.CutPrefix(a, "--endpoint="); {
		case ok:
			out[i] = "--endpoint=" + maskEndpoint(value)
		case i > 0 && args[i-1] == "--endpoint":
			out[i] = maskEndpoint(a)
		default:
			out[i] = maskArg(a)
		}
	}
	return out
}

func maskEndpoint(value string) string {
	store, raw, ok := strings.Cut(value, "=")
	if !ok {
		return hidden
	}
	if u, err := url.Parse(raw); err != nil || u.Scheme == "" || u.Host == "" {
		return store + "=" + hidden
	}
	return store + "=" + maskArg(raw)
}
