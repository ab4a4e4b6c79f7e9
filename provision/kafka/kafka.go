// Package kafka gets an Apache Kafka broker: one that the user names, the product itself as one node on a Java virtual
// machine, or a stand-in (kfake) built into this program.
package kafka

import (
	"context"

	"github.com/eventproof/eventproof/provision"
)

// Name of the store, as in a target's Needs.
const Name = "kafka"

const title = "Kafka"

const scheme = "kafka://"

// Store returns the ways to a Kafka broker.
func Store() provision.Store {
	return provision.Store{
		Name: Name, Title: title, CheckURL: CheckURL,
		Ways: []provision.Way{
			{Kind: provision.External, Start: external, Inspect: inspectExternal},
			{Kind: provision.Native, Start: native, Inspect: inspectNative, Fetch: fetchNative},
			{Kind: provision.Embedded, Emulated: true, Start: embedded, Inspect: inspectEmbedded},
		},
		Remedy: "Install Java 17 or newer (on Debian and Ubuntu the package openjdk-17-jre-headless), and name Kafka's folder in " + envHome +
			" or allow fetching its jars (eventproof doctor --fetch), or name a running broker in " + provision.EnvURL(Name),
	}
}

func inspectExternal(ctx context.Context, o provision.Options) []provision.Option {
	return provision.InspectExternal(ctx, o, OpenExternal)
}
