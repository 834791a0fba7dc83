package main

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// key is what indexes compare: a number for the int64 domain, a text for the bytes domain.
type key struct {
	number int64
	text   string
}

func (k key) compare(other key) int {
	switch {
	case k.number < other.number:
		return -1
	case k.number > other.number:
		return 1
	default:
		return strings.Compare(k.text, other.text)
	}
}

// precision and scale of a decimal; 0 for other types.
func decimalOf(valueType string) (int, int) {
	inner, found := strings.CutPrefix(valueType, "decimal(")
	if !found {
		return 0, 0
	}
	p, s, _ := strings.Cut(strings.TrimSuffix(inner, ")"), ",")
	precision, err := strconv.Atoi(p)
	check(err)
	scale, err := strconv.Atoi(s)
	check(err)
	return precision, scale
}

// isBytes tells whether keys of a type are bytes.
func isBytes(valueType string) bool {
	precision, _ := decimalOf(valueType)
	return precision > 18 || valueType == "string" || valueType == "binary" || valueType == "uuid" ||
		strings.HasPrefix(valueType, "fixed[")
}

// formOf is the stored form of a column's type.
func formOf(valueType string) int64 {
	switch {
	case isBytes(valueType):
		return 0
	case valueType == "boolean":
		return 1
	case valueType == "int" || valueType == "date":
		return 4
	case valueType == "float":
		return -4
	case valueType == "double":
		return -8
	}
	return 8
}

func floatKey(value float64) int64 {
	if math.IsNaN(value) {
		return 0x7FF8000000000000
	}
	bits := int64(math.Float64bits(value + 0)) // -0.0 + 0 is 0.0
	if bits < 0 {
		bits ^= math.MaxInt64
	}
	return bits
}

// doubleOf is the double of a key.
func doubleOf(bits int64) float64 {
	if bits < 0 {
		bits ^= math.MaxInt64
	}
	return math.Float64frombits(uint64(bits))
}

// storedKey reads a value in a stored form, and gives its key and length.
func storedKey(form int64, data []byte) (key, int) {
	be := binary.BigEndian
	switch form {
	case 0:
		n := int(be.Uint32(data))
		return key{text: string(data[4 : 4+n])}, 4 + n
	case 1:
		return key{number: int64(data[0])}, 1
	case 4:
		return key{number: int64(int32(be.Uint32(data)))}, 4
	case 8:
		return key{number: int64(be.Uint64(data))}, 8
	case -4:
		return key{number: floatKey(float64(math.Float32frombits(be.Uint32(data))))}, 4
	case -8:
		return key{number: floatKey(math.Float64frombits(be.Uint64(data)))}, 8
	}
	fail("form %d", form)
	return key{}, 0
}

// literalKey gives the key of a value as questions spell it.
func literalKey(valueType, text string) key {
	if precision, scale := decimalOf(valueType); precision > 0 {
		return decimalKey(text, precision, scale)
	}
	switch valueType {
	case "boolean":
		return key{number: map[string]int64{"false": 0, "true": 1}[text]}
	case "int", "long":
		n, err := strconv.ParseInt(text, 10, 64)
		check(err)
		return key{number: n}
	case "date":
		return key{number: moment("2006-01-02", text).Unix() / 86_400}
	case "time":
		return key{number: moment("15:04:05", text).Sub(moment("15:04:05", "00:00:00")).Microseconds()}
	case "timestamp", "timestamptz":
		return key{number: moment("2006-01-02T15:04:05", strings.TrimSuffix(text, "+00:00")).UnixMicro()}
	case "float":
		value, err := strconv.ParseFloat(text, 32)
		check(err)
		return key{number: floatKey(value)}
	case "double":
		value, err := strconv.ParseFloat(text, 64)
		check(err)
		return key{number: floatKey(value)}
	case "string":
		return key{text: text}
	}
	data, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	check(err)
	return key{text: string(data)}
}

func moment(layout, text string) time.Time {
	found, err := time.Parse(layout, text)
	check(err)
	return found
}

func decimalKey(text string, precision, scale int) key {
	whole, fraction, _ := strings.Cut(text, ".")
	require(len(fraction) == scale, "%s has another scale than %d", text, scale)
	unscaled, ok := new(big.Int).SetString(whole+fraction, 10)
	require(ok, "%s is no decimal", text)
	if precision <= 18 {
		return key{number: unscaled.Int64()}
	}
	// Two's complement with the sign bit flipped is the number plus 2^127.
	unscaled.Add(unscaled, new(big.Int).Lsh(big.NewInt(1), 127))
	return key{text: string(unscaled.FillBytes(make([]byte, 16)))}
}
