package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
)

// hostpathRoot is the directory in which the controller manager's provisioner
// creates the directories of volumes. It is hard-coded there, so all clusters
// share it.
const hostpathRoot = "/tmp/hostpath_pv"

// recordVolumes writes the directory of every PersistentVolume into the file
// `volumes`, so that the directories can be removed when the API server is gone.
func recordVolumes(ctx context.Context, l layout, client kubernetes.Interface) {
	known := map[string]bool{}
	for ctx.Err() == nil {
		if err := recordVolumesOnce(ctx, l, client, known); err != nil && ctx.Err() == nil {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
}

func recordVolumesOnce(ctx context.Context, l layout, client kubernetes.Interface, known map[string]bool) error {
	volumes := client.CoreV1().PersistentVolumes()
	list, err := volumes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, volume := range list.Items {
		if err := recordVolume(l, &volume, known); err != nil {
			return err
		}
	}
	watcher, err := volumes.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		volume, ok := event.Object.(*corev1.PersistentVolume)
		if !ok || event.Type != watch.Added {
			continue
		}
		if err := recordVolume(l, volume, known); err != nil {
			return err
		}
	}
	return nil
}

func recordVolume(l layout, volume *corev1.PersistentVolume, known map[string]bool) error {
	source := volume.Spec.HostPath
	if source == nil || filepath.Dir(source.Path) != hostpathRoot || known[source.Path] {
		return nil
	}
	file, err := os.OpenFile(l.volumes(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	known[source.Path] = true
	_, err = fmt.Fprintln(file, source.Path)
	return err
}

// removeVolumes removes the recorded directories. No container ever runs, so
// they are empty; os.Remove fails for a directory with files.
func removeVolumes(l layout) error {
	file, err := os.Open(l.volumes())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		path := strings.TrimSpace(lines.Text())
		if filepath.Dir(path) != hostpathRoot {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("failed to remove the directory of a volume: %w", err)
		}
	}
	// Succeeds only for the last cluster with volumes: others keep it filled.
	_ = os.Remove(hostpathRoot)
	return os.Remove(l.volumes())
}
