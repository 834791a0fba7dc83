package main

import "encoding/binary"

// child is a child of a page: a block or a page.
type child struct {
	start, end int
	rowsBefore int // rows of all blocks before, in the whole payload
	keys       int
	isFull     bool // the separator is the first key
	isSet      bool // the block is the row set of that key
	checksum   uint32
	separator  key
}

// places are what the layouts of postings and contents say of blocks and directory; pairs are those of a row and a key.
type places struct {
	form, groupsSum, rootSum      int64
	pairs, blocksEnd, pages, root int
}

// directory has the blocks that the root and all pages list.
type directory struct {
	form     byte // of the keys: 0 int64, 1 bytes
	children []child
	pairs    int
}

// readDirectory reads the root and all pages.
func readDirectory(p payload, at places) directory {
	require(at.form == 0 || at.form == 1, "form %d", at.form)
	require((at.form == 1) == isBytes(p.valueType), "form of keys")
	var spans []int
	for _, s := range p.spans {
		spans = append(spans, s.base, s.rows)
	}
	proven(little(spans...), uint32(at.groupsSum))
	found := directory{form: byte(at.form), pairs: at.pairs}
	level, pairs, blocks := found.page(p.data, at.root, len(p.data), uint32(at.rootSum), 0)
	require(pairs == at.pairs, "%d rows under the root", pairs)
	if level == 0 {
		require(at.pages == at.root, "pages under a root of blocks")
	} else {
		saw("root of two levels of " + p.blobType)
		upper := found.children
		found.children = nil
		for _, page := range upper {
			require(page.start >= at.pages && page.end <= at.root, "a page in another place")
			below, _, _ := found.page(p.data, page.start, page.end, page.checksum, page.rowsBefore)
			require(below == 0, "a third level")
		}
	}
	require(len(found.children) == blocks, "%d blocks", len(found.children))
	end := 0
	for _, block := range found.children {
		require(block.start == end, "a gap before a block")
		end = block.end
	}
	require(end == at.blocksEnd, "the end of the blocks")
	return found
}

// page reads a page behind the children that are known; it gives its level, and the rows and blocks under it.
func (d *directory) page(data []byte, start, end int, checksum uint32, rowsBefore int) (level, rows, blocks int) {
	page := proven(data[start:end], checksum)
	le := binary.LittleEndian
	number := func(at int) int { return int(le.Uint32(page[at:])) }
	require(page[0] == 2 && page[1] == d.form && page[3] == 0, "version, form and flags of a page")
	count := number(4)
	place, lowest := i64(page, 24), 0
	for i := 0; i < count; i++ {
		keys := number(32 + 12*count + 4*i)
		one := child{
			start:      place,
			end:        i64(page, 32+8*i),
			rowsBefore: rowsBefore + number(32+8*count+4*i),
			keys:       keys >> 2,
			isFull:     keys&1 == 1,
			isSet:      keys&2 == 2,
			checksum:   uint32(number(32 + 16*count + 4*i)),
		}
		separators := 32 + 20*count
		if d.form == 0 {
			one.separator.number = int64(i64(page, separators+8*i))
		} else {
			highest := number(separators + 4*i)
			texts := separators + 4*count
			one.separator.text = string(page[texts+lowest : texts+highest])
			lowest = highest
		}
		place = one.end
		d.children = append(d.children, one)
	}
	return int(page[2]), i64(page, 16), number(12)
}

// locate gives the row group of a row of the row space, and the row's number in it.
func locate(spans []span, row int) (int, uint32) {
	for i := len(spans) - 1; i >= 0; i-- {
		if row >= spans[i].base && row < spans[i].base+spans[i].rows {
			return i, uint32(row - spans[i].base)
		}
	}
	fail("row %d of the row space is of no row group", row)
	return 0, 0
}

func proveNulls(columns []column, stored []byte, p payload) {
	nulls := make([][]uint32, len(columns))
	if len(stored) > 0 {
		for _, row := range whole(stored) {
			group, own := locate(p.spans, int(row))
			nulls[group] = append(nulls[group], own)
		}
	}
	count := 0
	for i := range columns {
		columns[i].proveNulls(nulls[i])
		count += len(nulls[i])
	}
	require(int64(count) == version(p.layout)[2], "number of NULL rows")
}

// decodePostings reads all blocks, and the NULL rows.
func decodePostings(p payload) []column {
	layout := version(p.layout)
	require(len(layout) == 9, "%d numbers in a layout", len(layout))
	nulls, pages := int(layout[4]), int(layout[6])
	d := readDirectory(p, places{
		form: layout[0], groupsSum: layout[3], rootSum: layout[8],
		pairs: int(layout[1]), blocksEnd: nulls, pages: pages, root: int(layout[7]),
	})
	all := newColumn(total(p.spans, 1))
	d.readBlocks(p, func(k key, numbers []uint32) { all.set(numbers, k) })
	found := split(all, p.spans, 1)
	proveNulls(found, proven(p.data[nulls:pages], uint32(layout[5])), p)
	return found
}

// readBlocks gives each key, ascending, with the numbers of its rows, each once and ascending. One number is free
// behind each row group.
func (d *directory) readBlocks(p payload, take func(k key, numbers []uint32)) {
	firsts := make([]int, len(p.spans))
	for i := 1; i < len(firsts); i++ {
		firsts[i] = firsts[i-1] + p.spans[i-1].rows + 1
	}
	rows := 0
	var last *key
	give := func(k key, numbers []uint32) {
		require(last == nil || last.compare(k) < 0, "keys that do not ascend")
		for i := 1; i < len(numbers); i++ {
			require(numbers[i-1] < numbers[i], "a key has row %d again", numbers[i])
		}
		last = &k
		rows += len(numbers)
		take(k, numbers)
	}
	for _, one := range d.children {
		require(one.rowsBefore == rows, "rows before a block")
		block := proven(p.data[one.start:one.end], one.checksum)
		if one.isSet {
			saw("block that is a row set of " + p.blobType)
			require(one.isFull && one.keys == 1, "a row set of several keys")
			var numbers []uint32
			for _, row := range whole(block) {
				group, own := locate(p.spans, int(row))
				numbers = append(numbers, uint32(firsts[group])+own)
			}
			give(one.separator, numbers)
			continue
		}
		keys, groups := d.block(block, one)
		require(!one.isFull || keys[0] == one.separator, "the separator of a block")
		require(one.separator.compare(keys[0]) <= 0, "the separator of a block")
		require(last == nil || last.compare(one.separator) < 0, "the separator of a block")
		for i, k := range keys {
			give(k, groups[i])
		}
	}
	require(rows == d.pairs, "%d rows have a key", rows)
}

// stream reads n numbers of a width, and gives the bytes behind them.
func stream(data []byte, n, width int) ([]uint64, []byte) {
	numbers := make([]uint64, n)
	for i := range numbers {
		for b := 0; b < width; b++ {
			bit := i*width + b
			numbers[i] |= uint64(data[bit>>3]>>(bit&7)&1) << b
		}
	}
	return numbers, data[(n*width+7)/8:]
}

// block gives the keys of a block, and the rows of each.
func (d *directory) block(data []byte, c child) ([]key, [][]uint32) {
	le := binary.LittleEndian
	sections, width, size := int(le.Uint32(data)), int(le.Uint32(data[4:])), le.Uint64(data[8:])
	lengths, rest := data[16:16+4*sections], data[16+4*sections:]
	keys := make([]key, c.keys)
	if d.form == 0 {
		keys[0] = c.separator
		var steps []uint64
		steps, rest = stream(rest, c.keys-1, width)
		for i, step := range steps {
			keys[i+1].number = int64(uint64(keys[i].number) + size + step)
		}
	} else {
		content := rest[:width]
		rest = rest[width:]
		if uint64(width) != size {
			saw("keys of a block in a frame")
			content = zstd(content, int(size))
		}
		at := 4 * c.keys
		for i := range keys {
			length := int(le.Uint32(content[4*i:]))
			keys[i].text = string(content[at : at+length])
			at += length
		}
	}
	groups := make([][]uint32, c.keys)
	for i := 0; i < sections; i++ {
		length := int(le.Uint32(lengths[4*i:]))
		of := section(rest[:length])
		rest = rest[length:]
		if sections > 1 {
			saw("block of several sections")
			require(c.keys == 1 && len(of) == 1, "a section of several keys")
			groups[0] = append(groups[0], of[0]...)
		} else {
			require(len(of) == c.keys, "%d groups of %d keys", len(of), c.keys)
			groups = of
		}
	}
	require(len(rest) == 0, "bytes behind a block")
	return keys, groups
}

// section gives the rows of each group.
func section(data []byte) [][]uint32 {
	le := binary.LittleEndian
	runs, groups := int(le.Uint16(data))+1, int(le.Uint16(data[2:]))+1
	var streams [4][]uint64
	rest := data[28:]
	for i, n := range []int{groups, groups, runs - groups, runs} {
		streams[i], rest = stream(rest, n, int(data[4+i]))
		for j := range streams[i] {
			streams[i][j] += uint64(le.Uint32(data[8+4*i:]))
		}
	}
	require(len(rest) == 0, "bytes behind a section")
	counts, firsts, gaps, lengths := streams[0], streams[1], streams[2], streams[3]
	found := make([][]uint32, groups)
	total, gap, run := 0, 0, 0
	for g := range found {
		row := firsts[g]
		for i := uint64(0); i < counts[g]; i++ {
			if i > 0 {
				row += gaps[gap]
				gap++
			}
			for end := row + lengths[run]; row < end; row++ {
				found[g] = append(found[g], uint32(row))
			}
			run++
		}
		total += len(found[g])
	}
	require(total == int(le.Uint32(data[24:])), "rows of a section")
	return found
}
