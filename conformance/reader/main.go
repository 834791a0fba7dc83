// The reader of the conformance kit: it answers all questions from the segments alone.
//
//	go run . FOLDER
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

func fail(format string, values ...any) { panic(fmt.Sprintf(format, values...)) }

func require(holds bool, format string, values ...any) {
	if !holds {
		fail(format, values...)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// forms are what the segments have that a reader may meet.
var forms = map[string]bool{}

func saw(form string) { forms[form] = true }

// subject is what an index or a question is about: a column, one key of a map, or what the rows of a column contain.
type subject struct {
	Field   int
	MapKey  string `json:"map-key"`
	Content string
}

// stored is a kind as segments spell it.
func (s subject) stored(kind string) string {
	switch {
	case s.MapKey != "":
		return kind + "#k#" + s.MapKey
	case s.Content != "":
		return kind + "#c#" + s.Content
	}
	return kind
}

type index struct {
	subject
	Kind string
}

type question struct {
	subject
	Type          string
	Test          string
	Negated       bool
	Values        []string
	Low, High     *string
	LowInclusive  bool `json:"low-inclusive"`
	HighInclusive bool `json:"high-inclusive"`
	Rows          [][][3]int
}

type kitTable struct {
	Segments  map[string][]index
	Questions []question
}

// isAmong tells whether a key satisfies the test if the test is not negated.
func (q question) isAmong(k key) bool {
	found := false
	if q.Test == "in" {
		for _, value := range q.Values {
			found = found || k == literalKey(q.Type, value)
		}
		return found
	}
	found = true
	if q.Low != nil {
		order := k.compare(literalKey(q.Type, *q.Low))
		found = order > 0 || order == 0 && q.LowInclusive
	}
	if q.High != nil {
		order := k.compare(literalKey(q.Type, *q.High))
		found = found && (order < 0 || order == 0 && q.HighInclusive)
	}
	return found
}

// due gives the answer for a row group.
func (q question) due(group int) []uint32 {
	var rows []uint32
	for _, steps := range q.Rows[group] {
		for row := steps[0]; row <= steps[1]; row += steps[2] {
			rows = append(rows, uint32(row))
		}
	}
	return rows
}

// counts are what the reader did.
type counts struct{ segments, indexes, answers, absent, falsePositives int }

func main() {
	folder := ".."
	if len(os.Args) > 1 {
		folder = os.Args[1]
	}
	data, err := os.ReadFile(filepath.Join(folder, "questions.json"))
	check(err)
	var tables map[string]kitTable
	check(json.Unmarshal(data, &tables))
	var done counts
	for _, table := range tables {
		for name, indexes := range table.Segments {
			answerAll(name, filepath.Join(folder, "segments", name+".puffin"), indexes, table.Questions, &done)
		}
	}
	require(done.falsePositives*10 <= done.absent, "%d of %d absent values may be there", done.falsePositives, done.absent)
	fmt.Printf("%d segments, %d indexes, %d answers, all as due; %d of %d absent values may be there\n",
		done.segments, done.indexes, done.answers, done.falsePositives, done.absent)
	names := make([]string, 0, len(forms))
	for form := range forms {
		names = append(names, form)
	}
	sort.Strings(names)
	fmt.Println(strings.Join(names, "\n"))
}

// answerAll asks all indexes of a segment all questions about their columns.
func answerAll(name, path string, indexes []index, questions []question, done *counts) {
	at := "the footer"
	defer func() {
		if trouble := recover(); trouble != nil {
			fmt.Fprintf(os.Stderr, "%s, %s: %v\n", name, at, trouble)
			os.Exit(1)
		}
	}()
	opened := openSegment(path)
	spans := rowGroups(opened)
	done.segments++
	require(len(indexes) == len(opened.of("puffin-index-directory-v1", 0, "")), "directories that nobody names")
	for _, own := range indexes {
		at = fmt.Sprintf("field %d, %s", own.Field, own.stored(own.Kind))
		payloads := payloadsOf(opened, own, spans)
		done.indexes++
		if own.Kind == "bloom" {
			askFilters(payloads, own, questions, done)
			continue
		}
		var groups []rowGroup
		for _, p := range payloads {
			groups = append(groups, decode(p)...)
		}
		proveStatistics(opened.only("puffin-index-statistics-v1", own.Field, own.stored("statistics")), groups)
		for _, q := range questions {
			if q.subject != own.subject {
				continue
			}
			require(q.Type == payloads[0].valueType, "type %s", payloads[0].valueType)
			for group, decoded := range groups {
				var rows []uint32
				for row := 0; row < decoded.rows(); row++ {
					if decoded.satisfies(q, row) {
						rows = append(rows, uint32(row))
					}
				}
				require(slices.Equal(rows, q.due(group)), "row group %d, %+v: rows %v", group, q, rows)
				done.answers++
			}
		}
	}
}

// askFilters asks bloom filters for each value that a question asks for alone.
func askFilters(payloads []payload, own index, questions []question, done *counts) {
	for _, q := range questions {
		if q.subject != own.subject || q.Test != "in" || q.Negated || len(q.Values) != 1 {
			continue
		}
		var found []bool
		for _, p := range payloads {
			found = append(found, mayContain(p, literalKey(q.Type, q.Values[0]))...)
		}
		for group, may := range found {
			isThere := len(q.Rows[group]) > 0
			require(may || !isThere, "row group %d: %v is lost", group, q.Values)
			done.answers++
			if !isThere {
				done.absent++
				if may {
					done.falsePositives++
				}
			}
		}
	}
}

// rowGroups numbers the row groups of a segment.
func rowGroups(opened *segment) []span {
	list := opened.only("puffin-index-row-groups-v1", 0, "")
	var spans []span
	base := 0
	for i := 0; i < list.rows; i++ {
		rows := int(list.columns["row_count"].ints[i])
		require(int(list.columns["base"].ints[i]) == base, "base of row group %d", i)
		spans = append(spans, span{base, rows})
		base += (rows + 65_535) / 65_536 * 65_536
	}
	return spans
}

// payloadsOf reads the directory of an index.
func payloadsOf(opened *segment, own index, spans []span) []payload {
	kind := own.stored(own.Kind)
	list := opened.only("puffin-index-directory-v1", own.Field, kind)
	require(list.metadata["kind"] == kind, "kind in a directory")
	require(slices.Equal(list.names, []string{"first_row_group", "row_groups", "offset", "length", "blob_type", "layout"}),
		"columns of a directory")
	var payloads []payload
	next := 0
	for i := 0; i < list.rows; i++ {
		first, count := int(list.columns["first_row_group"].ints[i]), int(list.columns["row_groups"].ints[i])
		offset, length := int(list.columns["offset"].ints[i]), int(list.columns["length"].ints[i])
		require(first == next, "row group %d comes twice or never", next)
		next += count
		saw("blob " + string(list.columns["blob_type"].bytes[i]))
		blobType := string(list.columns["blob_type"].bytes[i])
		payloads = append(payloads, payload{
			opened.data[offset : offset+length], blobType, list.columns["layout"].list(i),
			list.metadata["value-type"], spans[first : first+count],
		})
		proveBlob(opened, own, kind, offset, length, first, blobType, list.metadata["value-type"])
	}
	require(next == len(spans), "row groups without a payload")
	return payloads
}

// proveBlob requires that the footer describes a payload as its directory does.
func proveBlob(opened *segment, own index, kind string, offset, length, first int, blobType, valueType string) {
	for _, b := range opened.of(blobType, own.Field, kind) {
		if b.Offset == offset && b.Length == length && b.Properties["row-group"] == fmt.Sprint(first) {
			require(b.Properties["value-type"] == valueType, "value-type of a blob")
			return
		}
	}
	fail("a payload that the footer does not know")
}
