// s3 serves the files of a directory as objects of one bucket, to requests that a secret key has signed:
// s3 ADDRESS DIRECTORY BUCKET, with S3_ACCESS_KEY and S3_SECRET_KEY in the environment.
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"path/filepath"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: s3 ADDRESS DIRECTORY BUCKET")
	}
	address, directory, bucket := os.Args[1], os.Args[2], os.Args[3]
	backend := s3mem.New()
	if err := load(backend, directory, bucket); err != nil {
		log.Fatal(err)
	}
	keys := map[string]string{os.Getenv("S3_ACCESS_KEY"): os.Getenv("S3_SECRET_KEY")}
	server := gofakes3.New(backend, gofakes3.WithV4Auth(keys))
	log.Fatal(http.ListenAndServe(address, server.Server()))
}

// load puts each file of the directory into a new bucket, by its relative path.
func load(backend gofakes3.Backend, directory, bucket string) error {
	ctx := context.Background()
	if err := backend.CreateBucket(ctx, bucket); err != nil {
		return err
	}
	return filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		key, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		_, err = backend.PutObject(ctx, bucket, key, map[string]string{}, file, info.Size())
		return err
	})
}
