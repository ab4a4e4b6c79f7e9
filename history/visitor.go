package history

import "github.com/eventproof/eventproof/eventstore"

// visitor is walked over a record's fields, in wire order.
type visitor interface {
	u64(name string, v *uint64)
	u32(name string, v *uint32)
	u8(name string, v *uint8)
	i64(name string, v *int64)
	boolean(name string, v *bool)
	str(name string, v *string)
	bytes(name string, v *[]byte)
	id(name string, v *eventstore.EventID)
	ids(name string, v *[]eventstore.EventID)
	hash(name string, v *eventstore.Hash)
	position(name string, v *eventstore.Position)
	cursor(name string, v *eventstore.Cursor)
}
