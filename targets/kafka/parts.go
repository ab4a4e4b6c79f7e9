package kafka

import "github.com/eventproof/eventproof/targets/kafka/owner"

// Parts fill the places of an assembly that live in the adapter. A control takes the parts of a correct variant and swaps
// one.
type Parts struct {
	// Append is how a partition is owned and written.
	Append owner.Appender
	// Route is which owner a writer asks first.
	Route Router
	// Unfenced: appends are made without transactions, so that no fence can shut out what is still on its way. False for
	// every correct part.
	Unfenced bool
}
