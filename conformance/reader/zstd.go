package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// zstd decompresses one frame that holds size bytes. Go's standard library has a decoder of zstd for the sections of ELF
// files only, so the frame becomes the only section of such a file.
func zstd(frame []byte, size int) []byte {
	const headers, chdr = 64 + 3*64, 24
	file := make([]byte, headers+chdr, headers+chdr+len(frame)+1)
	le := binary.LittleEndian
	copy(file, []byte{0x7f, 'E', 'L', 'F', 2, 1, 1})
	le.PutUint16(file[16:], 1)  // a relocatable file
	le.PutUint16(file[18:], 62) // of x86-64
	le.PutUint32(file[20:], 1)
	le.PutUint64(file[40:], 64) // where the section headers are
	le.PutUint16(file[52:], 64)
	le.PutUint16(file[58:], 64) // bytes of a section header
	le.PutUint16(file[60:], 3)  // sections
	le.PutUint16(file[62:], 2)  // the section with the names
	section := func(number int, kind uint32, flags uint64, offset, length int) {
		header := file[64+64*number:]
		le.PutUint32(header[4:], kind)
		le.PutUint64(header[8:], flags)
		le.PutUint64(header[24:], uint64(offset))
		le.PutUint64(header[32:], uint64(length))
	}
	section(1, uint32(elf.SHT_PROGBITS), uint64(elf.SHF_COMPRESSED), headers, chdr+len(frame))
	section(2, uint32(elf.SHT_STRTAB), 0, headers+chdr+len(frame), 1)
	le.PutUint32(file[headers:], uint32(elf.COMPRESS_ZSTD))
	le.PutUint64(file[headers+8:], uint64(size))
	le.PutUint64(file[headers+16:], 1)
	file = append(append(file, frame...), 0)
	parsed, err := elf.NewFile(bytes.NewReader(file))
	check(err)
	content, err := parsed.Sections[1].Data()
	check(err)
	return content
}

// contentSize reads the content size from the header of a frame.
func contentSize(frame []byte) int {
	descriptor := frame[4]
	at := 5
	if descriptor&0x20 == 0 {
		at++ // the window
	}
	at += []int{0, 1, 2, 4}[descriptor&3] // the dictionary
	switch descriptor >> 6 {
	case 0:
		require(descriptor&0x20 != 0, "a zstd frame without its content size")
		return int(frame[at])
	case 1:
		return int(binary.LittleEndian.Uint16(frame[at:])) + 256
	case 2:
		return int(binary.LittleEndian.Uint32(frame[at:]))
	default:
		return int(binary.LittleEndian.Uint64(frame[at:]))
	}
}

func isFrame(data []byte) bool { return bytes.HasPrefix(data, zstdMagic) }

func unframe(frame []byte) []byte { return zstd(frame, contentSize(frame)) }
