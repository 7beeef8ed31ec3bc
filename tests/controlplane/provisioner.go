package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	volumehelpers "k8s.io/component-helpers/storage/volume"
)

const (
	directoryProvisioner = "controlplane.test/directory"
	// fsGroupParameter of a StorageClass is `ignored` for volumes whose files keep their owners, as on NFS.
	fsGroupParameter = "fsGroup"
	ignoredClass     = "fsgroup-ignored"
)

// directoryClasses are the StorageClasses of a cluster with a real Node.
func directoryClasses() []*storagev1.StorageClass {
	binding := storagev1.VolumeBindingWaitForFirstConsumer
	class := func(name string, annotations, parameters map[string]string) *storagev1.StorageClass {
		return &storagev1.StorageClass{
			ObjectMeta:        metav1.ObjectMeta{Name: name, Annotations: annotations},
			Provisioner:       directoryProvisioner,
			Parameters:        parameters,
			VolumeBindingMode: &binding,
		}
	}
	return []*storagev1.StorageClass{
		class("standard", map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}, nil),
		class(ignoredClass, nil, map[string]string{fsGroupParameter: "ignored"}),
	}
}

// directories provisions each claim with a directory of the Node: root's, as a new file system is.
type directories struct {
	client kubernetes.Interface
	ctx    context.Context
}

// provisionDirectories works until the context ends.
func provisionDirectories(ctx context.Context, client kubernetes.Interface) {
	// The time between two tries of what failed.
	const resync = 5 * time.Second
	d := directories{client, ctx}
	factory := informers.NewSharedInformerFactory(client, resync)
	watch := func(informer cache.SharedIndexInformer, handle func(any) error) {
		report := func(object any) {
			if err := handle(object); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "warning:", err)
			}
		}
		// It fails only for an informer that has stopped.
		_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    report,
			UpdateFunc: func(_, object any) { report(object) },
		})
	}
	watch(factory.Core().V1().PersistentVolumeClaims().Informer(), func(object any) error {
		return d.provision(object.(*corev1.PersistentVolumeClaim))
	})
	watch(factory.Core().V1().PersistentVolumes().Informer(), func(object any) error {
		return d.remove(object.(*corev1.PersistentVolume))
	})
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
}

// provision makes the volume of a claim for which the scheduler has chosen the Node.
func (d directories) provision(claim *corev1.PersistentVolumeClaim) error {
	node := claim.Annotations[volumehelpers.AnnSelectedNode]
	if claim.Annotations[volumehelpers.AnnStorageProvisioner] != directoryProvisioner || node == "" || claim.Spec.VolumeName != "" {
		return nil
	}
	class, err := d.client.StorageV1().StorageClasses().Get(d.ctx, *claim.Spec.StorageClassName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("failed to read the StorageClass of %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	name := "pvc-" + string(claim.UID)
	path := filepath.Join(nodeState, "volumes", name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("failed to make the directory of a volume: %w", err)
	}
	_, err = d.client.CoreV1().PersistentVolumes().Create(d.ctx, directoryVolume(claim, class, name, path, node), metav1.CreateOptions{})
	if existsIsFine(err) != nil {
		return fmt.Errorf("failed to create the volume of %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

func directoryVolume(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, name, path, node string) *corev1.PersistentVolume {
	// The kubelet changes the group of local volumes, but not of those of hostPath.
	source := corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}
	if class.Parameters[fsGroupParameter] == "ignored" {
		source = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{volumehelpers.AnnDynamicallyProvisioned: directoryProvisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeReclaimPolicy: *class.ReclaimPolicy,
			StorageClassName:              class.Name,
			VolumeMode:                    claim.Spec.VolumeMode,
			PersistentVolumeSource:        source,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
					}},
				}},
			}},
		},
	}
}

// remove deletes a released volume and its directory.
func (d directories) remove(volume *corev1.PersistentVolume) error {
	if volume.Annotations[volumehelpers.AnnDynamicallyProvisioned] != directoryProvisioner ||
		volume.Status.Phase != corev1.VolumeReleased ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(nodeState, "volumes", volume.Name)); err != nil {
		return fmt.Errorf("failed to remove the directory of a volume: %w", err)
	}
	err := d.client.CoreV1().PersistentVolumes().Delete(d.ctx, volume.Name, metav1.DeleteOptions{})
	// The volume may have been seen twice.
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("failed to delete the volume %s: %w", volume.Name, err)
	}
	return nil
}
