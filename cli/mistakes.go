package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/eventproof/eventproof/scenarios"
)

// none takes no arguments. A word that was meant to be a command gets a suggestion.
func none(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	word, name := maskArg(args[0]), commandName(cmd)
	var known []string
	if !cmd.HasParent() {
		known = append(known, "help")
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() && !c.Hidden {
			known = append(known, c.Name())
		}
	}
	if !cmd.HasAvailableSubCommands() {
		return usage("%s takes no argument, but was given %q; see eventproof %s --help", name, word, name)
	}
	full := strings.TrimSpace(name + " " + word)
	if best, ok := scenarios.Closest(word, known); ok {
		return usage("there is no command %q; did you mean %q?", full, strings.TrimSpace(name+" "+best))
	}
	return usage("there is no command %q; see %s --help", full, cmd.CommandPath())
}

// commandName is the command as people say it, without the program.
func commandName(cmd *cobra.Command) string {
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	return name
}

// one takes the single argument that the command's usage line names.
func one(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	_, what, _ := strings.Cut(cmd.Use, " ")
	name := commandName(cmd)
	if len(args) == 0 {
		return usage("%s what? eventproof %s %s", name, name, what)
	}
	return usage("%s takes one %s, but was given %d; see eventproof %s --help", name, what, len(args), name)
}

// some takes at least one argument.
func some(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return one(cmd, args)
}

// flagMistake says what is wrong with a flag and what would be right.
func flagMistake(cmd *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
		value   *pflag.InvalidValueError
	)
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return usage("there is no flag -%s; see %s --help", unknown.GetSpecifiedName(), cmd.CommandPath())
	case errors.As(err, &unknown):
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, f.Name)
			}
		})
		if best, ok := scenarios.Closest(unknown.GetSpecifiedName(), known); ok {
			return usage("there is no flag --%s; did you mean --%s?", unknown.GetSpecifiedName(), best)
		}
		return usage("there is no flag --%s; see %s --help", unknown.GetSpecifiedName(), cmd.CommandPath())
	case errors.As(err, &missing):
		what, _ := pflag.UnquoteUsage(missing.GetFlag())
		return usage("--%s needs a value: --%s %s", missing.GetFlag().Name, missing.GetFlag().Name, what)
	case errors.As(err, &value):
		return usage("--%s %q: %s", value.GetFlag().Name, maskArg(value.GetValue()), wanted(value.GetFlag().Value.Type()))
	}
	return usage("%w; see %s --help", err, cmd.CommandPath())
}

func wanted(kind string) string {
	switch kind {
	case "duration":
		return "write a length of time such as 500ms, 10s or 2m"
	case "int", "uint", "uint64":
		return "write a whole number"
	case "bool":
		return "write true or false"
	}
	return "not a " + kind
}

// choose checks a flag that takes one of a few words.
func choose(flag, got string, words ...string) error {
	if slices.Contains(words, got) {
		return nil
	}
	list := strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
	if best, ok := scenarios.Closest(got, words); ok && got != "" {
		return usage("--%s %q: choose %s; did you mean %q?", flag, got, list, best)
	}
	return usage("--%s %q: choose %s", flag, got, list)
}

// unknownName says that there is no such thing, with what was probably meant, and where all of them are listed.
func unknownName(what, name string, known []string, list string) error {
	if best, ok := scenarios.Closest(name, known); ok {
		return fmt.Errorf("there is no %s %q; did you mean %q? (%s)", what, name, best, list)
	}
	return fmt.Errorf("there is no %s %q (%s)", what, name, list)
}

// printable makes text of others harmless: no control sequence reaches the terminal, and no line can be taken for a
// command to the CI that reads the log.
func printable(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		l = strings.ToValidUTF8(l, "\uFFFD")
		l = strings.Map(func(r rune) rune {
			if r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
				return '\uFFFD'
			}
			return r
		}, l)
		if strings.HasPrefix(strings.TrimSpace(l), "::") {
			l = "| " + l
		}
		lines[i] = l
	}
	return strings.Join(lines, "\n")
}

// oneLine joins the lines of a message and leaves repeated ones out.
func oneLine(s string) string {
	var lines []string
	for l := range strings.SplitSeq(s, "\n") {
		if l = strings.TrimSpace(l); l != "" && !slices.Contains(lines, l) {
			lines = append(lines, l)
		}
	}
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}
