package main

import (
	"encoding/binary"
	"math"
)

// hash gives the 64-bit hash of a key.
func hash(form int64, k key) uint64 {
	switch form {
	case 0:
		return xxh64([]byte(k.text))
	case -4:
		bits := math.Float32bits(float32(doubleOf(k.number)))
		if k.number == floatKey(math.NaN()) {
			bits = 0x7FC00000
		}
		return wang(int64(int32(bits)))
	case -8:
		if k.number == floatKey(math.NaN()) {
			return wang(0x7FF8000000000000)
		}
		return wang(int64(math.Float64bits(doubleOf(k.number))))
	}
	return wang(k.number)
}

func wang(n int64) uint64 {
	k := ^n + n<<21
	k ^= k >> 24
	k *= 265
	k ^= k >> 14
	k *= 21
	k ^= k >> 28
	k += k << 31
	return uint64(k)
}

// positions gives the bits of a hash in a filter of so many bits.
func positions(h uint64, k, bits int) []int {
	h1, h2 := int32(h), int32(h>>32)
	found := make([]int, k)
	for i := range found {
		x := h1 + int32(i+1)*h2
		if x < 0 {
			x = ^x
		}
		found[i] = int(x) % bits
	}
	return found
}

// mayContain tells for each row group of a payload whether its filter has a key.
func mayContain(p payload, k key) []bool {
	if p.blobType == "puffin-index-bloom-matrix-v1" {
		return matrixContains(p, k)
	}
	require(p.blobType == "paimon-bloom-v1", "blob type %s", p.blobType)
	layout := version(p.layout)
	count, bits, size := int(binary.BigEndian.Uint32(p.data)), p.data[4:], int(layout[2])
	if len(bits) > size {
		saw("bloom filter of several pages")
	}
	require(int64(count) == layout[1], "k of a bloom filter")
	for page := 0; page*size < len(bits); page++ {
		pair := uint64(layout[3+page/2])
		checksum := uint32(pair >> 32)
		if page%2 == 1 {
			checksum = uint32(pair)
		}
		proven(bits[page*size:min((page+1)*size, len(bits))], checksum)
	}
	found := true
	for _, bit := range positions(hash(layout[0], k), count, 8*len(bits)) {
		found = found && bits[bit>>3]>>(bit&7)&1 == 1
	}
	return []bool{found}
}

func matrixContains(p payload, k key) []bool {
	layout := version(p.layout)
	h, groups, start := hash(layout[0], k), int(layout[1]), int(layout[2])
	list := proven(p.data[start:], uint32(layout[3]))
	le := binary.LittleEndian
	require(groups == len(p.spans) && le.Uint32(list) == 2, "directory of a bloom matrix")
	found := make([]bool, groups)
	matrices := int(le.Uint32(list[4:]))
	if matrices > 1 {
		saw("several matrices")
	}
	place := 0
	for m := 0; m < matrices; m++ {
		about := list[8+24*m:]
		count, filters, bits, share := int(le.Uint32(about)), int(le.Uint32(about[4:])), i64(about, 8), int(le.Uint32(about[16:]))
		if bits > 8*share {
			saw("matrix of several pages")
		}
		answer := make([]bool, filters)
		for i := range answer {
			answer[i] = true
		}
		for _, bit := range positions(h, count, bits) {
			page, at := bit/8/share, bit/8%share
			own := min(share, bits/8-page*share)
			first := place + page*(share*filters+4)
			data := sealed(p.data, first, first+own*filters, binary.BigEndian)
			for i := range answer {
				answer[i] = answer[i] && data[i*own+at]>>(bit&7)&1 == 1
			}
		}
		filter := 0
		for g := 0; g < groups; g++ {
			if int(le.Uint16(list[8+24*matrices+2*g:])) == m {
				found[g] = answer[filter]
				filter++
			}
		}
		require(filter == filters, "filters of a matrix")
		place += bits/8*filters + 4*((bits/8+share-1)/share)
	}
	require(place == start, "matrices of %d bytes", place)
	return found
}
