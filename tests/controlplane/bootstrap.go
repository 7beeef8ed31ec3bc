package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// kubernetesVersion is the version of the components in go.mod.
const kubernetesVersion = "v1.36.3"

// bootstrap creates the objects that a new cluster needs. It leaves existing
// objects alone, so that a second start keeps the changes of the tests.
func bootstrap(ctx context.Context, client kubernetes.Interface, options clusterOptions, port int) error {
	classes := []*storagev1.StorageClass{boundClass()}
	if options.real.count > 0 {
		classes = directoryClasses()
		if err := writeEndpoint(ctx, client, port); err != nil {
			return fmt.Errorf("failed to write the endpoint of the Service kubernetes: %w", err)
		}
	}
	for _, class := range classes {
		if _, err := client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); existsIsFine(err) != nil {
			return fmt.Errorf("failed to create a StorageClass: %w", err)
		}
	}
	if err := createAnnotationPolicy(ctx, client); err != nil {
		return fmt.Errorf("failed to create the policy for annotations: %w", err)
	}
	for i := range options.nodes {
		if err := createNode(ctx, client, fmt.Sprintf("node-%d", i+1)); err != nil {
			return fmt.Errorf("failed to create a Node: %w", err)
		}
	}
	return nil
}

// boundClass is the default StorageClass of a cluster without real Nodes.
func boundClass() *storagev1.StorageClass {
	// Immediate: a claim is bound without a Pod, by the real binder, to a real
	// PersistentVolume.
	binding := storagev1.VolumeBindingImmediate
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "standard",
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner:       "kubernetes.io/host-path",
		VolumeBindingMode: &binding,
	}
}

// writeEndpoint leads the Service kubernetes to the first API server at the address of the real Node.
func writeEndpoint(ctx context.Context, client kubernetes.Interface, port int) error {
	name, number, protocol := "https", int32(port), corev1.ProtocolTCP
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{realNodeIP}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &number, Protocol: &protocol}},
	}
	slices := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	_, err := slices.Create(ctx, slice, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// The port may be another one.
		_, err = slices.Update(ctx, slice, metav1.UpdateOptions{})
	}
	return err
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
