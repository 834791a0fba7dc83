package main

// contents is a decoded payload of contents: the keys of each row of a row group, each key once, and which rows are
// NULL, contain nothing, or contain NULL.
type contents struct {
	keys              [][]key
	null, empty, open []bool
}

func newContents(rows int) contents {
	return contents{make([][]key, rows), make([]bool, rows), make([]bool, rows), make([]bool, rows)}
}

func (c contents) rows() int { return len(c.keys) }

// satisfies tells whether one key of a row satisfies the test; negated, whether certainly none of its keys does.
func (c contents) satisfies(q question, row int) bool {
	if q.Test == "null" {
		return c.null[row] != q.Negated
	}
	if c.null[row] || q.Negated && c.open[row] {
		return false
	}
	found := false
	for _, k := range c.keys[row] {
		found = found || q.isAmong(k)
	}
	return found != q.Negated
}

// facts are those that a payload tells: statistics count a key as often as a row contains it, a payload once.
func (c contents) facts() facts {
	found := facts{rows: len(c.keys), isOnceARow: true}
	for row, own := range c.keys {
		found.keys = append(found.keys, own...)
		if c.null[row] {
			found.nulls++
		}
	}
	return found
}

// proveOthers requires of rows that are NULL or contain nothing that they have no key, and of all others a key or NULL.
func (c contents) proveOthers() {
	for row, own := range c.keys {
		kinds := 0
		for _, holds := range []bool{c.null[row], c.empty[row], c.open[row] || len(own) > 0} {
			if holds {
				kinds++
			}
		}
		require(kinds == 1, "row %d: NULL %v, empty %v, with NULL %v, %d keys", row, c.null[row], c.empty[row], c.open[row], len(own))
		if len(own) > 1 {
			saw("row of several keys")
		}
	}
}

// decodeContents reads all blocks, and the three row sets behind them.
func decodeContents(p payload) []contents {
	layout := version(p.layout)
	require(len(layout) == 13, "%d numbers in a layout", len(layout))
	sets, pages := int(layout[6]), int(layout[10])
	d := readDirectory(p, places{
		form: layout[0], groupsSum: layout[5], rootSum: layout[12],
		pairs: int(layout[1]), blocksEnd: sets, pages: pages, root: int(layout[11]),
	})
	every := newContents(total(p.spans, 1))
	d.readBlocks(p, func(k key, numbers []uint32) {
		for _, n := range numbers {
			every.keys[n] = append(every.keys[n], k)
		}
	})
	var found []contents
	first := 0
	for _, s := range p.spans {
		own := newContents(s.rows)
		copy(own.keys, every.keys[first:])
		found = append(found, own)
		require(len(every.keys[first+s.rows]) == 0, "a key of a number that is of no row")
		first += s.rows + 1
	}

	stored := proven(p.data[sets:pages], uint32(layout[9]))
	nullEnd := int(layout[7])
	emptyEnd := nullEnd + int(layout[8])
	readSet(p, stored[:nullEnd], layout[2], func(group int, row uint32) { found[group].null[row] = true })
	readSet(p, stored[nullEnd:emptyEnd], layout[3], func(group int, row uint32) { found[group].empty[row] = true })
	readSet(p, stored[emptyEnd:], layout[4], func(group int, row uint32) { found[group].open[row] = true })
	for _, own := range found {
		own.proveOthers()
	}
	return found
}

// readSet gives the rows of a row set of the row space, of which there are so many.
func readSet(p payload, stored []byte, count int64, take func(group int, row uint32)) {
	require((count == 0) == (len(stored) == 0), "a row set of %d rows takes %d bytes", count, len(stored))
	if count == 0 {
		return
	}
	rows := whole(stored)
	require(int64(len(rows)) == count, "%d rows in a row set of %d", len(rows), count)
	for _, row := range rows {
		take(locate(p.spans, int(row)))
	}
}
