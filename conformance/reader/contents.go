package main

import "slices"

// contents is a decoded payload of contents: the keys of each block of rows of a row group, each key once, and which
// rows are NULL, contain nothing, or contain NULL.
type contents struct {
	blockRows         int
	keys              [][]key
	null, empty, open []bool
}

func newContents(blockRows, rows int) contents {
	blocks := (rows + blockRows - 1) / blockRows
	return contents{blockRows, make([][]key, blocks), make([]bool, rows), make([]bool, rows), make([]bool, rows)}
}

func (c contents) rows() int { return len(c.null) }

// satisfies tells whether one key of a row satisfies the test; negated, whether certainly none of its keys does.
func (c contents) satisfies(q question, row int) bool {
	if q.Test == "null" {
		return c.null[row] != q.Negated
	}
	// A block has all of its rows.
	if c.blockRows == 1 && (c.null[row] || q.Negated && c.open[row]) {
		return false
	}
	found := false
	for _, k := range c.keys[row/c.blockRows] {
		found = found || q.isAmong(k)
	}
	return found != q.Negated
}

// facts are those that a payload tells: statistics count a key as often as a row contains it, a payload once.
func (c contents) facts() facts {
	found := facts{rows: c.rows(), isOnceARow: true}
	for _, own := range c.keys {
		found.keys = append(found.keys, own...)
	}
	for _, isNull := range c.null {
		if isNull {
			found.nulls++
		}
	}
	return found
}

// proveOthers requires of rows that are NULL or contain nothing that they have no key, and of all others a key or NULL.
func (c contents) proveOthers() {
	if c.blockRows > 1 {
		saw("keys known to blocks of rows")
		require(!slices.Contains(c.empty, true) && !slices.Contains(c.open, true), "rows of words that are empty or open")
		return
	}
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
	require(len(layout) == 14, "%d numbers in a layout", len(layout))
	blockRows, sets, pages := int(layout[1]), int(layout[7]), int(layout[11])
	require(blockRows > 0 && 65536%blockRows == 0, "blocks of %d rows", blockRows)
	d := readDirectory(p, places{
		form: layout[0], groupsSum: layout[6], rootSum: layout[13],
		pairs: int(layout[2]), blocksEnd: sets, pages: pages, root: int(layout[12]),
	})
	ofBlocks := p
	ofBlocks.spans = nil
	for _, s := range p.spans {
		ofBlocks.spans = append(ofBlocks.spans, span{s.base / blockRows, (s.rows + blockRows - 1) / blockRows})
	}
	every := make([][]key, total(ofBlocks.spans, 1))
	d.readBlocks(ofBlocks, func(k key, numbers []uint32) {
		for _, n := range numbers {
			every[n] = append(every[n], k)
		}
	})
	var found []contents
	first := 0
	for i, s := range ofBlocks.spans {
		own := newContents(blockRows, p.spans[i].rows)
		copy(own.keys, every[first:])
		found = append(found, own)
		require(len(every[first+s.rows]) == 0, "a key of a number that is of no row")
		first += s.rows + 1
	}

	stored := proven(p.data[sets:pages], uint32(layout[10]))
	nullEnd := int(layout[8])
	emptyEnd := nullEnd + int(layout[9])
	readSet(p, stored[:nullEnd], layout[3], func(group int, row uint32) { found[group].null[row] = true })
	readSet(p, stored[nullEnd:emptyEnd], layout[4], func(group int, row uint32) { found[group].empty[row] = true })
	readSet(p, stored[emptyEnd:], layout[5], func(group int, row uint32) { found[group].open[row] = true })
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
