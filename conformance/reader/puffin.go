package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"unicode/utf16"
)

// blob is an entry of the footer.
type blob struct {
	Type       string            `json:"type"`
	Fields     []int             `json:"fields"`
	Offset     int               `json:"offset"`
	Length     int               `json:"length"`
	Properties map[string]string `json:"properties"`
}

// segment is a Puffin file.
type segment struct {
	data  []byte
	blobs []blob
}

// openSegment reads a segment and proves all its checksums.
func openSegment(path string) *segment {
	data, err := os.ReadFile(path)
	check(err)
	magic, end := []byte("PFA1"), len(data)
	require(bytes.HasPrefix(data, magic) && bytes.HasSuffix(data, magic), "a segment without its magic")
	require(binary.LittleEndian.Uint32(data[end-8:]) == 0, "flags of the footer")
	size := int(binary.LittleEndian.Uint32(data[end-12:]))
	payload := data[end-12-size : end-12]
	require(bytes.Equal(data[end-16-size:end-12-size], magic), "a footer without its magic")

	var footer struct {
		Blobs      []blob
		Properties map[string]string
	}
	check(json.Unmarshal(payload, &footer))
	var document map[string]any
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	check(decoder.Decode(&document))
	delete(document["properties"].(map[string]any), "footer-xxh64")
	var text strings.Builder
	spell(&text, document)
	require(hex16(xxh64([]byte(text.String()))) == footer.Properties["footer-xxh64"], "checksum of the footer")
	place := 4
	for _, b := range footer.Blobs {
		require(b.Offset == place, "a gap before the blob at %d", b.Offset)
		place += b.Length
		require(hex16(xxh64(data[b.Offset:place])) == b.Properties["xxh64"], "checksum of the blob at %d", b.Offset)
	}
	require(place == end-16-size, "a gap before the footer")
	return &segment{data, footer.Blobs}
}

func hex16(n uint64) string { return fmt.Sprintf("%016x", n) }

// spell writes JSON as the footer's checksum wants: sorted names, no blanks, ASCII only.
func spell(to *strings.Builder, value any) {
	switch v := value.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		sort.Strings(names)
		for i, name := range names {
			to.WriteByte("{,"[min(i, 1)])
			spell(to, name)
			to.WriteByte(':')
			spell(to, v[name])
		}
		if len(names) == 0 {
			to.WriteByte('{')
		}
		to.WriteByte('}')
	case []any:
		to.WriteByte('[')
		for i, one := range v {
			if i > 0 {
				to.WriteByte(',')
			}
			spell(to, one)
		}
		to.WriteByte(']')
	case string:
		to.WriteByte('"')
		for _, r := range v {
			spellRune(to, r)
		}
		to.WriteByte('"')
	default:
		fmt.Fprint(to, v)
	}
}

func spellRune(to *strings.Builder, r rune) {
	short := strings.IndexRune("\"\\\b\t\n\f\r", r)
	switch {
	case short >= 0:
		to.WriteByte('\\')
		to.WriteByte("\"\\btnfr"[short])
	case r >= 0x20 && r < 0x7f:
		to.WriteRune(r)
	case r > 0xffff:
		first, second := utf16.EncodeRune(r)
		fmt.Fprintf(to, "\\u%04x\\u%04x", first, second)
	default:
		fmt.Fprintf(to, "\\u%04x", r)
	}
}

// of gives the blobs of a type, of one field and kind if asked.
func (s *segment) of(blobType string, field int, kind string) []blob {
	var found []blob
	for _, b := range s.blobs {
		if b.Type == blobType && (kind == "" || len(b.Fields) == 1 && b.Fields[0] == field && b.Properties["kind"] == kind) {
			found = append(found, b)
		}
	}
	return found
}

func (s *segment) only(blobType string, field int, kind string) batch {
	found := s.of(blobType, field, kind)
	require(len(found) == 1, "%d blobs %s of field %d, %s", len(found), blobType, field, kind)
	parsed := parseArrow(s.data[found[0].Offset : found[0].Offset+found[0].Length])
	require(parsed.metadata["version"] == "1", "version of %s", blobType)
	return parsed
}
