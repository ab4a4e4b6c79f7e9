// Package wire stands in the wire between a role and a server. It splits what flows into the messages of a
// protocol and delays, swallows, cuts, holds or parks them by rule, telling an Observer exactly which message
// on which connection was touched and whether it is known to have taken effect.
//
// A Proxy is built from toxiproxy's links and toxic chains. One toxic of ours stands in both chains of every
// connection from its first byte on, because a protocol can't be followed from the middle; rules are applied to
// it and withdrawn while chains stay as they are. The listener, the dial of the server and the sockets are ours:
// toxiproxy's accept loop dials one server at a time without a time-out, and its sockets can't be reached to
// reset them.
//
// A parked request outlives its client. Toxiproxy closes the server's side when the toxic closes its output, not
// when the client leaves; so the toxic does not close while a commit is parked. When the rule is lifted the
// commit is sent on, its answer is read (and passed on if the client is still there), and only then the server's
// side is closed.
package wire
