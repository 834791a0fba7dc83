package main

import (
	"encoding/binary"
	"math/bits"
)

// roaring decodes a row set: its rows, ascending, and the bytes that it takes.
func roaring(data []byte) ([]uint32, int) {
	le := binary.LittleEndian
	cookie := le.Uint32(data)
	var n int
	var flags []byte
	at := 4
	if cookie&0xffff == 12347 {
		n = int(cookie>>16) + 1
		flags = data[at : at+(n+7)/8]
		at += len(flags)
	} else {
		require(cookie == 12346, "a row set begins with %d", cookie)
		n = int(le.Uint32(data[at:]))
		at += 4
	}
	descriptions := data[at:]
	at += 4 * n
	if flags == nil || n >= 4 {
		at += 4 * n // offsets: containers follow each other
	}
	var rows []uint32
	for i := 0; i < n; i++ {
		high := uint32(le.Uint16(descriptions[4*i:])) << 16
		count := int(le.Uint16(descriptions[4*i+2:])) + 1
		before := len(rows)
		switch {
		case flags != nil && flags[i>>3]>>(i&7)&1 == 1:
			saw("container of runs")
			runs := int(le.Uint16(data[at:]))
			at += 2
			for ; runs > 0; runs-- {
				first, more := uint32(le.Uint16(data[at:])), uint32(le.Uint16(data[at+2:]))
				for row := first; row <= first+more; row++ {
					rows = append(rows, high|row)
				}
				at += 4
			}
		case count <= 4096:
			saw("container of rows")
			for j := 0; j < count; j++ {
				rows = append(rows, high|uint32(le.Uint16(data[at+2*j:])))
			}
			at += 2 * count
		default:
			saw("container of bits")
			rows = append(rows, bitRows(data[at:at+8192], high)...)
			at += 8192
		}
		require(len(rows)-before == count, "a container of %d rows has %d", count, len(rows)-before)
	}
	return rows, at
}

// bitRows lists the bits that are set, lowest first, as rows from a first row on.
func bitRows(data []byte, first uint32) []uint32 {
	var rows []uint32
	for i, b := range data {
		for ; b != 0; b &= b - 1 {
			rows = append(rows, first+uint32(8*i+bits.TrailingZeros8(b)))
		}
	}
	return rows
}

// whole decodes a row set that takes all of its bytes.
func whole(data []byte) []uint32 {
	rows, end := roaring(data)
	require(end == len(data), "a row set of %d bytes ends after %d", len(data), end)
	return rows
}
