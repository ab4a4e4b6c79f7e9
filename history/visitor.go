package history

import "github.com/eventproof/eventproof/eventstore"

// visitor is walked over a record's fields, in wire order. The encoder and the JSON form read the fields, the
// decoder sets them, the schema only looks at their names and types.
type visitor interface {
	u64(name string, v *uint64)
	u32(name string, v *uint32)
	i64(name string, v *int64)
	boolean(name string, v *bool)
	str(name string, v *string)
	bytes(name string, v *[]byte)
	id(name string, v *eventstore.EventID)
	ids(name string, v *[]eventstore.EventID)
	hash(name string, v *eventstore.Hash)
	rangeHash(name string, v *RangeHash)
	position(name string, v *eventstore.Position)
	positions(name string, v *[]eventstore.Position)
	cursor(name string, v *eventstore.Cursor)
	info(name string, v *TrialInfo)
	enum(name string, v *uint8, of *enumeration)
	writeEvents(name string, v *[]WriteEvent)

	// begin and end bracket the fields of an inner object; elements of lists have no name.
	begin(name string)
	end()
}
