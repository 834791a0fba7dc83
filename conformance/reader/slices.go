package main

import "encoding/binary"

// half is one half of bit slices: its rows, and the magnitude of each.
type half struct {
	rows       []uint32
	magnitudes map[uint32]uint64
}

// parts describes where the parts of bit slices lie and how they are stored.
type parts struct {
	data      []byte
	isPaimon  bool // the number of slices stands behind an existence set, and all parts are row sets
	plainBits int  // the length of a part of plain bits
}

func (p parts) rows(start, end int, checksum uint32) []uint32 {
	stored := proven(p.data[start:end], checksum)
	if p.isPaimon {
		return whole(stored)
	}
	name := ""
	if len(stored) != p.plainBits && isFrame(stored) {
		stored, name = unframe(stored), " in a frame"
	}
	if len(stored) == p.plainBits {
		saw("part of plain bits" + name)
		return bitRows(stored, 0)
	}
	saw("part of a row set" + name)
	return whole(stored)
}

// half reads a half: five numbers about it, and one number for each part, of which the numbers left over are given back.
func (p parts) half(about, places []int64) (half, []int64) {
	slices, count, minimum, maximum, end := about[0], about[1], about[2], about[3], int(about[4])
	if slices < 0 {
		saw("half that is missing")
		require(count == 0 && minimum == 0 && maximum == 0 && end == 0, "a half that is missing has numbers")
		return half{}, places
	}
	own := places[:1+slices]
	ends := make([]int, len(own))
	for i := range own {
		ends[i] = end
		if i+1 < len(own) {
			ends[i] = int(own[i+1] >> 32)
		}
	}
	if p.isPaimon {
		ends[0] -= 4
		require(int64(binary.BigEndian.Uint32(p.data[ends[0]:])) == slices, "number of slices")
	}
	found := half{p.rows(int(own[0]>>32), ends[0], uint32(own[0])), map[uint32]uint64{}}
	require(int64(len(found.rows)) == count, "rows of a half")
	for _, row := range found.rows {
		found.magnitudes[row] = uint64(minimum)
	}
	for i := int64(1); i <= slices; i++ {
		for _, row := range p.rows(int(own[i]>>32), ends[i], uint32(own[i])) {
			_, there := found.magnitudes[row]
			require(there, "row %d has a bit and no number", row)
			found.magnitudes[row] += 1 << (i - 1)
		}
	}
	least, greatest := ^uint64(0), uint64(0)
	for _, magnitude := range found.magnitudes {
		least, greatest = min(least, magnitude), max(greatest, magnitude)
	}
	require(least == uint64(minimum) && greatest == uint64(maximum), "minimum and maximum of a half")
	return found, places[1+slices:]
}

// numbers reads both halves by their numbers in a layout into the number of each row.
func (p parts) numbers(layout []int64, rows int) ([]int64, []bool) {
	positive, left := p.half(layout[:5], layout[10:])
	negative, left := p.half(layout[5:10], left)
	require(len(left) == 0, "numbers left in a layout")
	numbers, present := make([]int64, rows), make([]bool, rows)
	for row, magnitude := range positive.magnitudes {
		numbers[row], present[row] = int64(magnitude), true
	}
	for row, magnitude := range negative.magnitudes {
		require(!present[row], "row %d in both halves", row)
		numbers[row], present[row] = -int64(magnitude), true
	}
	return numbers, present
}

func columnOf(numbers []int64, present []bool, dictionary []key) column {
	found := newColumn(len(numbers))
	for row, there := range present {
		switch {
		case !there:
		case dictionary == nil:
			found.set([]uint32{uint32(row)}, key{number: numbers[row]})
		default:
			found.set([]uint32{uint32(row)}, dictionary[numbers[row]])
		}
	}
	return found
}

// decodeSlices reads the bit slices of all row groups of a blob, whose rows are numbered without gaps.
func decodeSlices(p payload) column {
	rows, layout := total(p.spans, 0), version(p.layout)
	if p.blobType == "paimon-bsi-v1" {
		require(p.data[0] == 1 && int(binary.BigEndian.Uint32(p.data[1:])) == rows, "header of bit slices")
		numbers, present := parts{data: p.data, isPaimon: true}.numbers(layout, rows)
		return columnOf(numbers, present, nil)
	}
	var counts []int
	for _, s := range p.spans {
		counts = append(counts, s.rows)
	}
	proven(little(counts...), uint32(layout[0]))
	var dictionary []key
	if end := int(layout[1]); end > 0 {
		dictionary = readDictionary(p.data, end, uint32(layout[2]), p.valueType)
	} else {
		require(layout[2] == 0, "checksum of no dictionary")
	}
	numbers, present := parts{data: p.data, plainBits: (rows + 7) / 8}.numbers(layout[3:], rows)
	return columnOf(numbers, present, dictionary)
}

// readDictionary reads all keys.
func readDictionary(data []byte, end int, checksum uint32, valueType string) []key {
	proven(data[:end], checksum)
	be := binary.BigEndian
	number := func(at int) int { return int(be.Uint32(data[at:])) }
	require(data[0] == 1 && data[2] == 0 && data[3] == 0, "version and flags of a dictionary")
	form, count, blocks := data[1], number(4), number(8)
	require((form == 1) == isBytes(valueType), "form of a dictionary")
	require(20+number(12) == end, "length of a directory")
	ranks, ends := 20, 20+4*blocks
	lengths, checksums, separators := ends+4*blocks, ends+8*blocks, ends+12*blocks
	var keys []key
	first, lowest := end, 0
	for i := 0; i < blocks; i++ {
		last := end + number(ends+4*i)
		content := proven(data[first:last], uint32(number(checksums+4*i)))
		if length := number(lengths + 4*i); length != last-first {
			saw("block of a dictionary in a frame")
			content = zstd(content, length)
		}
		require(number(ranks+4*i) == len(keys), "rank of a block")
		next := count
		if i+1 < blocks {
			next = number(ranks + 4*(i+1))
		}
		own := blockKeys(form, content, next-len(keys))
		if form == 0 {
			require(own[0].number == int64(be.Uint64(data[separators+8*i:])), "first key of a block")
		} else {
			texts := separators + 4*blocks
			separator := string(data[texts+lowest : texts+number(separators+4*i)])
			lowest = number(separators + 4*i)
			require(separator <= own[0].text && (i == 0 || separator > keys[len(keys)-1].text), "separator of a block")
		}
		keys, first = append(keys, own...), last
	}
	require(len(keys) == count && first == end+number(16), "%d keys in a dictionary of %d", len(keys), count)
	return keys
}

func blockKeys(form byte, content []byte, count int) []key {
	keys := make([]key, count)
	for i := range keys {
		if form == 0 {
			for plane := 0; plane < 8; plane++ {
				keys[i].number = keys[i].number<<8 | int64(content[plane*count+i])
			}
		}
	}
	if form == 1 {
		at := 4 * count
		for i := range keys {
			length := int(binary.BigEndian.Uint32(content[4*i:]))
			keys[i].text = string(content[at : at+length])
			at += length
		}
		require(at == len(content), "keys of a block")
	}
	return keys
}
