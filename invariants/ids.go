package invariants

// idsPerPage is small: a hostile file pays a record for each page that it makes us keep.
const idsPerPage = 64

// byID holds one T an id. A process counts its ids up, so those of a history lie close together: pages of them are found
// far faster than single entries of a map with millions. The zero T means that there is none.
type byID[T any] struct {
	pages map[uint64]*[idsPerPage]T
	last  *[idsPerPage]T // the page used last, nil if none
	key   uint64         // of last
}

func (m *byID[T]) find(key uint64) *[idsPerPage]T {
	if m.last == nil || m.key != key {
		page := m.pages[key]
		if page == nil {
			return nil
		}
		m.last, m.key = page, key
	}
	return m.last
}

func (m *byID[T]) get(id uint64) (v T) {
	if page := m.find(id / idsPerPage); page != nil {
		return page[id%idsPerPage]
	}
	return v
}

func (m *byID[T]) set(id uint64, v T) {
	key := id / idsPerPage
	page := m.find(key)
	if page == nil {
		if m.pages == nil {
			m.pages = map[uint64]*[idsPerPage]T{}
		}
		page = new([idsPerPage]T)
		m.pages[key], m.last, m.key = page, page, key
	}
	page[id%idsPerPage] = v
}
