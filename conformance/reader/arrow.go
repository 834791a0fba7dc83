package main

import (
	"encoding/binary"
)

// A flatbuffer table: its bytes, and where the table begins.
type table struct {
	data []byte
	at   int
}

func u16(b []byte, at int) int { return int(binary.LittleEndian.Uint16(b[at:])) }
func i32(b []byte, at int) int { return int(int32(binary.LittleEndian.Uint32(b[at:]))) }
func i64(b []byte, at int) int { return int(int64(binary.LittleEndian.Uint64(b[at:]))) }

func root(data []byte) table { return table{data, i32(data, 0)} }

// field gives the place of a field's value, 0 for a field that is left out.
func (t table) field(number int) int {
	vtable := t.at - i32(t.data, t.at)
	if 4+2*number >= u16(t.data, vtable) {
		return 0
	}
	if offset := u16(t.data, vtable+4+2*number); offset != 0 {
		return t.at + offset
	}
	return 0
}

func (t table) byteOf(number int) int {
	if at := t.field(number); at != 0 {
		return int(t.data[at])
	}
	return 0
}

func (t table) child(number int) table {
	at := t.field(number)
	return table{t.data, at + i32(t.data, at)}
}

// vector gives the place of the first element and the number of elements.
func (t table) vector(number int) (int, int) {
	at := t.field(number)
	if at == 0 {
		return 0, 0
	}
	at += i32(t.data, at)
	return at + 4, i32(t.data, at)
}

func (t table) tables(number int) []table {
	at, n := t.vector(number)
	var found []table
	for i := 0; i < n; i++ {
		found = append(found, table{t.data, at + 4*i + i32(t.data, at+4*i)})
	}
	return found
}

func (t table) text(number int) string {
	at, n := t.vector(number)
	return string(t.data[at : at+n])
}

// array is a decoded column. Numbers have ints, texts and binaries have bytes, lists have bounds into their child.
type array struct {
	valid  []bool
	ints   []int64
	bytes  [][]byte
	bounds []int
	child  *array
}

// list gives the numbers of one row of a list of numbers.
func (a *array) list(row int) []int64 { return a.child.ints[a.bounds[row]:a.bounds[row+1]] }

// batch is the record batch of an Arrow stream.
type batch struct {
	metadata map[string]string
	columns  map[string]*array
	names    []string
	rows     int
}

const (
	schemaMessage = 1
	batchMessage  = 3
)

// parseArrow reads an Arrow IPC stream of one record batch.
func parseArrow(stream []byte) batch {
	found := batch{metadata: map[string]string{}, columns: map[string]*array{}}
	var fields []table
	for len(stream) >= 8 {
		require(i32(stream, 0) == -1, "an Arrow message without its mark")
		length := i32(stream, 4)
		if length == 0 {
			break
		}
		message := root(stream[8 : 8+length])
		size := 0
		if at := message.field(3); at != 0 {
			size = i64(message.data, at)
		}
		body := stream[8+length : 8+length+size]
		stream = stream[8+length+size:]
		switch message.byteOf(1) {
		case schemaMessage:
			schema := message.child(2)
			fields = schema.tables(1)
			for _, pair := range schema.tables(2) {
				found.metadata[pair.text(0)] = pair.text(1)
			}
		case batchMessage:
			header := message.child(2)
			found.rows = i64(header.data, header.field(0))
			reader := &arrowReader{header: header, body: body}
			for _, field := range fields {
				found.names = append(found.names, field.text(0))
				found.columns[field.text(0)] = reader.column(field)
			}
		}
	}
	return found
}

type arrowReader struct {
	header        table
	body          []byte
	nodes, buffer int
}

func (r *arrowReader) node() int {
	at, _ := r.header.vector(1)
	r.nodes++
	return i64(r.header.data, at+16*(r.nodes-1))
}

func (r *arrowReader) next() []byte {
	at, _ := r.header.vector(2)
	at += 16 * r.buffer
	r.buffer++
	start, length := i64(r.header.data, at), i64(r.header.data, at+8)
	data := r.body[start : start+length]
	if r.header.field(3) == 0 || length == 0 {
		return data
	}
	size := i64(data, 0)
	if size == -1 {
		return data[8:]
	}
	return zstd(data[8:], size)
}

const (
	intType         = 2
	utf8Type        = 5
	largeBinaryType = 19
	largeListType   = 21
)

func (r *arrowReader) column(field table) *array {
	n := r.node()
	found := &array{valid: make([]bool, n)}
	validity := r.next()
	for i := range found.valid {
		found.valid[i] = len(validity) == 0 || validity[i>>3]>>(i&7)&1 == 1
	}
	switch kind := field.byteOf(2); kind {
	case intType:
		values, width := r.next(), i32(field.data, field.child(3).field(0))/8
		for i := 0; i < n; i++ {
			if width == 8 {
				found.ints = append(found.ints, int64(i64(values, 8*i)))
			} else {
				found.ints = append(found.ints, int64(i32(values, 4*i)))
			}
		}
	case utf8Type, largeBinaryType, largeListType:
		offsets := r.next()
		for i := 0; i <= n && len(offsets) > 0; i++ {
			if kind == utf8Type {
				found.bounds = append(found.bounds, i32(offsets, 4*i))
			} else {
				found.bounds = append(found.bounds, i64(offsets, 8*i))
			}
		}
		if kind == largeListType {
			found.child = r.column(field.tables(5)[0])
			break
		}
		data := r.next()
		for i := 0; i < n; i++ {
			found.bytes = append(found.bytes, data[found.bounds[i]:found.bounds[i+1]])
		}
	default:
		fail("an Arrow type that directories do not have: %d", kind)
	}
	return found
}
