package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// kubernetesVersion is the version of the components in go.mod.
const kubernetesVersion = "v1.36.3"

// bootstrap creates the objects that a new cluster needs. It leaves existing
// objects alone, so that a second start keeps the changes of the tests.
func bootstrap(ctx context.Context, client kubernetes.Interface, nodes int) error {
	if err := createStorageClass(ctx, client); err != nil {
		return fmt.Errorf("failed to create the default StorageClass: %w", err)
	}
	if err := createAnnotationPolicy(ctx, client); err != nil {
		return fmt.Errorf("failed to create the policy for annotations: %w", err)
	}
	for i := range nodes {
		if err := createNode(ctx, client, fmt.Sprintf("node-%d", i+1)); err != nil {
			return fmt.Errorf("failed to create a Node: %w", err)
		}
	}
	return nil
}

func createStorageClass(ctx context.Context, client kubernetes.Interface) error {
	// Immediate: a claim is bound without a Pod, by the real binder, to a real
	// PersistentVolume.
	binding := storagev1.VolumeBindingImmediate
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "standard",
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner:       "kubernetes.io/host-path",
		VolumeBindingMode: &binding,
	}
	_, err := client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	return existsIsFine(err)
}

func createNode(ctx context.Context, client kubernetes.Interface, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			"kubernetes.io/hostname":      name,
			"kubernetes.io/os":            "linux",
			"kubernetes.io/arch":          "amd64",
			"topology.kubernetes.io/zone": name,
		},
	}}
	_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	return existsIsFine(err)
}

func existsIsFine(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// awaitUsable returns when Pods can be created and run: the default service
// account exists and all Nodes are ready.
func awaitUsable(ctx context.Context, client kubernetes.Interface, nodes int) error {
	const poll = 25 * time.Millisecond
	for {
		missing := usableNow(ctx, client, nodes)
		if missing == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the cluster did not become usable in time: %w", missing)
		case <-time.After(poll):
		}
	}
}

func usableNow(ctx context.Context, client kubernetes.Interface, nodes int) error {
	if _, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return fmt.Errorf("the default service account is missing: %w", err)
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("the Nodes cannot be listed: %w", err)
	}
	usable := 0
	for _, node := range list.Items {
		// The node life-cycle controller takes the taint away a little after
		// the Node is ready; until then nothing is scheduled.
		if nodeReady(&node) && len(node.Spec.Taints) == 0 {
			usable++
		}
	}
	if usable < nodes {
		return fmt.Errorf("%d of %d Nodes are ready", usable, nodes)
	}
	return nil
}

func nodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
