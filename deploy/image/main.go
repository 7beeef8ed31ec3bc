// Command image writes an OCI layout with one image, whose only layer is a directory. It pulls nothing and needs no daemon.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The user of the chart's Pod.
const user = "65532:65532"

func main() {
	root := flag.String("root", "", "directory with the files of the image")
	out := flag.String("out", "", "directory of the layout, which must not exist")
	arch := flag.String("arch", "", "architecture of the programs")
	version := flag.String("version", "", "version and tag of the image")
	flag.Parse()
	log.SetFlags(0)
	if err := write(*root, *out, *arch, *version); err != nil {
		log.Fatalf("error: failed to write the image: %v", err)
	}
}

func write(root, out, arch, version string) error {
	files, err := pack(root)
	if err != nil {
		return err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return err
	}
	image, err = mutate.ConfigFile(image, config(image, arch, version))
	if err != nil {
		return err
	}
	path, err := layout.Write(out, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendImage(image,
		layout.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}),
		layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version}))
}

func config(image v1.Image, arch, version string) *v1.ConfigFile {
	file, err := image.ConfigFile()
	if err != nil {
		log.Fatalf("error: failed to read the empty image: %v", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", arch
	file.Config = v1.Config{
		User:       user,
		Entrypoint: []string{"/usr/bin/innkeeper"},
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "innkeeper",
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return file
}

// pack returns a tar archive of a directory. The same files give the same bytes: no times, no owners, sorted names.
func pack(root string) ([]byte, error) {
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: name, ModTime: time.Unix(0, 0), Mode: 0o644, Format: tar.FormatUSTAR}
		if entry.IsDir() {
			header.Typeflag, header.Name, header.Mode = tar.TypeDir, name+"/", 0o755
			return writer.WriteHeader(header)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		header.Typeflag, header.Size = tar.TypeReg, int64(len(content))
		header.Mode |= int64(info.Mode() & 0o111)
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		_, err = writer.Write(content)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}
