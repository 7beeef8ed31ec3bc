// Command image writes an OCI layout with one image, whose only layer is a directory or an archive. It pulls nothing and
// needs no daemon.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image is what the flags say.
type image struct {
	root, layer, out, arch, config, name, tag string
}

func main() {
	var i image
	flag.StringVar(&i.root, "root", "", "directory with the files of the image, which all belong to root")
	flag.StringVar(&i.layer, "layer", "", "archive with the files of the image, instead of a directory")
	flag.StringVar(&i.out, "out", "", "directory of the layout, which must not exist")
	flag.StringVar(&i.arch, "arch", "", "architecture of the programs")
	flag.StringVar(&i.config, "config", "{}", "user, entrypoint, environment and so on, as JSON with the names of the OCI image specification")
	flag.StringVar(&i.name, "name", "", "full name of the image for containerd, with its registry")
	flag.StringVar(&i.tag, "tag", "", "tag of the image, or several with commas")
	flag.Parse()
	log.SetFlags(0)
	if err := i.write(); err != nil {
		log.Fatalf("error: failed to write the image: %v", err)
	}
}

func (i image) write() error {
	layer, err := i.files()
	if err != nil {
		return err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", i.arch
	if err := json.Unmarshal([]byte(i.config), &file.Config); err != nil {
		return err
	}
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return err
	}
	path, err := layout.Write(i.out, empty.Index)
	if err != nil {
		return err
	}
	for tag := range strings.SplitSeq(i.tag, ",") {
		names := map[string]string{"org.opencontainers.image.ref.name": tag}
		if i.name != "" {
			names["io.containerd.image.name"] = i.name + ":" + tag
		}
		platform := v1.Platform{OS: "linux", Architecture: i.arch}
		if err := path.AppendImage(image, layout.WithPlatform(platform), layout.WithAnnotations(names)); err != nil {
			return err
		}
	}
	return nil
}

// files returns the layer.
func (i image) files() (v1.Layer, error) {
	if i.layer != "" {
		return tarball.LayerFromFile(i.layer, tarball.WithMediaType(types.OCILayer))
	}
	files, err := pack(i.root)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
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
