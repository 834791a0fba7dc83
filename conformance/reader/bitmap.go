package main

import "encoding/binary"

// entry is the place of a row set in the body, or a single row.
type entry struct {
	value          key
	offset, length int
}

func decodeBitmap(p payload) column {
	be, data := binary.BigEndian, p.data
	number := func(at int) int { return int(int32(be.Uint32(data[at:]))) }
	layout := version(p.layout)
	form, headerEnd, body := layout[0], int(layout[2]), int(layout[4])
	require(data[0] == 2 && layout[1] == 2, "version of a bitmap")
	proven(data[:headerEnd], uint32(layout[3]))
	rows, values := number(1), number(5)
	require(rows == p.spans[0].rows, "a bitmap of %d rows", rows)
	at := 10
	var nulls []entry
	if data[9] == 1 {
		nulls = []entry{{offset: number(at), length: number(at + 4)}}
		at += 8
	}
	entries := readBlocks(data, at, form, headerEnd, body)
	require(len(entries) == values, "%d values", len(entries))
	found := newColumn(rows)
	for i, e := range entries {
		require(i == 0 || entries[i-1].value.compare(e.value) < 0, "values that do not ascend")
		found.set(readRows(data, body, e), e.value)
	}
	var without []uint32
	for _, e := range nulls {
		without = readRows(data, body, e)
	}
	found.proveNulls(without)
	return found
}

// readBlocks reads the entries of all blocks.
func readBlocks(data []byte, at int, form int64, headerEnd, body int) []entry {
	be := binary.BigEndian
	number := func(at int) int { return int(int32(be.Uint32(data[at:]))) }
	blocks := number(at)
	at += 4
	if blocks > 1 {
		saw("bitmap of several blocks")
	}
	var firsts []entry
	for i := 0; i < blocks; i++ {
		first, n := storedKey(form, data[at:])
		firsts = append(firsts, entry{value: first, offset: headerEnd + number(at+n)})
		at += n + 4
	}
	require(at+4 == headerEnd && headerEnd+number(at) == body, "the end of a header")
	var entries []entry
	for _, first := range firsts {
		at = first.offset
		count := number(at)
		at += 4
		for i := 0; i < count; i++ {
			value, n := storedKey(form, data[at:])
			require(i > 0 || value == first.value, "first value of a block")
			entries = append(entries, entry{value, number(at + n), number(at + n + 4)})
			at += n + 8
		}
		sealed(data, first.offset, at, be)
	}
	return entries
}

// readRows reads the rows of an entry.
func readRows(data []byte, body int, e entry) []uint32 {
	if e.offset < 0 {
		saw("entry of a single row")
		return []uint32{uint32(-1 - e.offset)}
	}
	start := body + e.offset
	rows, length := roaring(data[start:])
	require(e.length == length, "a row set of %d bytes takes %d", e.length, length)
	sealed(data, start, start+length, binary.BigEndian)
	return rows
}
