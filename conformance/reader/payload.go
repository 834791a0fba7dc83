package main

import "encoding/binary"

// span is the place of a row group in the row space of a segment.
type span struct{ base, rows int }

// payload is a blob with what its directory says of it.
type payload struct {
	data      []byte
	blobType  string
	layout    []int64
	valueType string
	spans     []span
}

// rowGroup is what a payload has of one row group.
type rowGroup interface {
	rows() int
	satisfies(q question, row int) bool
	facts() facts
}

// column is a decoded payload of one key a row: the key of each row of a row group, if the row is not NULL.
type column struct {
	keys    []key
	present []bool
}

func newColumn(rows int) column { return column{make([]key, rows), make([]bool, rows)} }

func (c column) rows() int { return len(c.keys) }

// satisfies tells whether a row satisfies the test.
func (c column) satisfies(q question, row int) bool {
	if q.Test == "null" {
		return c.present[row] == q.Negated
	}
	return c.present[row] && q.isAmong(c.keys[row]) != q.Negated
}

func (c column) facts() facts {
	found := facts{rows: len(c.keys)}
	for row, present := range c.present {
		if present {
			found.keys = append(found.keys, c.keys[row])
		}
	}
	found.nulls = found.rows - len(found.keys)
	return found
}

// set gives rows a key, which each row may get once.
func (c column) set(rows []uint32, k key) {
	for _, row := range rows {
		require(!c.present[row], "row %d has two keys", row)
		c.keys[row], c.present[row] = k, true
	}
}

// proveNulls requires that the rows without a key are those that are known as NULL.
func (c column) proveNulls(nulls []uint32) {
	count := 0
	for _, present := range c.present {
		if !present {
			count++
		}
	}
	for _, row := range nulls {
		require(!c.present[row], "row %d is NULL and has a key", row)
	}
	require(count == len(nulls), "%d rows have no key, and %d are NULL", count, len(nulls))
}

// version checks the first number of a layout and gives the other numbers.
func version(layout []int64) []int64 {
	require(len(layout) > 0 && layout[0] == 1, "version of a layout")
	return layout[1:]
}

// sealed gives the bytes of a part that its checksum stands behind.
func sealed(data []byte, start, end int, order binary.ByteOrder) []byte {
	part := data[start:end]
	require(order.Uint32(data[end:]) == low(part), "seal of the part at %d", start)
	return part
}

// proven gives a part whose checksum is known.
func proven(part []byte, checksum uint32) []byte {
	require(low(part) == checksum, "checksum of a part of %d bytes", len(part))
	return part
}

// decode gives the rows of each row group that a payload covers.
func decode(p payload) []rowGroup {
	switch p.blobType {
	case "paimon-bitmap-v2":
		return []rowGroup{decodeBitmap(p)}
	case "paimon-bsi-v1", "puffin-index-bsi-v1":
		return groupsOf(split(decodeSlices(p), p.spans, 0))
	case "puffin-index-postings-v1":
		return groupsOf(decodePostings(p))
	case "puffin-index-contents-v1":
		return groupsOf(decodeContents(p))
	}
	fail("blob type %s", p.blobType)
	return nil
}

func groupsOf[T rowGroup](decoded []T) []rowGroup {
	var found []rowGroup
	for _, one := range decoded {
		found = append(found, one)
	}
	return found
}

// split cuts a column of all row groups, with so many unused numbers behind each row group, into row groups.
func split(whole column, spans []span, gap int) []column {
	var found []column
	first := 0
	for _, s := range spans {
		found = append(found, column{whole.keys[first : first+s.rows], whole.present[first : first+s.rows]})
		for i := first + s.rows; i < first+s.rows+gap; i++ {
			require(!whole.present[i], "a key of a number that is of no row")
		}
		first += s.rows + gap
	}
	require(first == len(whole.keys), "row groups of %d rows, and keys of %d", first, len(whole.keys))
	return found
}

// total gives the number of rows of row groups with so many unused numbers behind each.
func total(spans []span, gap int) int {
	sum := 0
	for _, s := range spans {
		sum += s.rows + gap
	}
	return sum
}

// little spells numbers in 8 bytes each, little-endian.
func little(numbers ...int) []byte {
	var data []byte
	for _, n := range numbers {
		data = binary.LittleEndian.AppendUint64(data, uint64(n))
	}
	return data
}
