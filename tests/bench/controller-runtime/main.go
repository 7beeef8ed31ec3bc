// Command controller-runtime is a peer in benchmarks: an operator that does the
// job of the memcached plugin with the usual means of controller-runtime. It
// reads from the cache, uses CreateOrUpdate, and updates a changed status once.
// With --apply it writes by server-side apply instead, under the same conditions.
// With --hook it is the webhook of another peer, Metacontroller.
//
// It prints the number of its reconciles when it ends.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type reconciler struct {
	client.Client
	byApply    bool
	events     events.EventRecorder
	reconciles atomic.Int64
}

func main() {
	r := &reconciler{}
	concurrency := flag.Int("concurrency", 1, "number of concurrent reconciles")
	flag.BoolVar(&r.byApply, "apply", false, "write by server-side apply")
	hookAddress := flag.String("hook", "", "serve the webhooks of Metacontroller at this address")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	count, err := r.reconciles.Load, error(nil)
	if *hookAddress != "" {
		count, err = serveHook(*hookAddress)
	} else {
		err = run(r, *concurrency)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	fmt.Printf("reconciles %d\n", count())
}

func run(r *reconciler, concurrency int) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, addToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.UserAgent = "bench-controller-runtime"
	if r.byApply {
		config.UserAgent += "-apply"
	}
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{"app.kubernetes.io/managed-by": managedBy})}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&appsv1.Deployment{}: ours, &corev1.Service{}: ours, &corev1.Pod{}: ours,
			},
		},
	})
	if err != nil {
		return err
	}
	r.Client = manager.GetClient()
	r.events = manager.GetEventRecorder(managedBy)
	changed := predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	err = ctrl.NewControllerManagedBy(manager).
		For(&Memcached{}, builder.WithPredicates(changed)).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(parentOfPod), builder.OnlyMetadata).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(r)
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func parentOfPod(_ context.Context, pod client.Object) []reconcile.Request {
	name, ok := pod.GetLabels()["app.kubernetes.io/instance"]
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}}}
}

// Reconcile brings the children of one parent to their desired state.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	r.reconciles.Add(1)
	parent := &Memcached{}
	if err := r.Get(ctx, request.NamespacedName, parent); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !parent.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	p := newPool(parent)
	name := metav1.ObjectMeta{Namespace: parent.Namespace, Name: parent.Name}
	deployment := &appsv1.Deployment{ObjectMeta: name}
	err := keep(ctx, r, parent, deployment, p.setDeployment)
	if err != nil {
		return ctrl.Result{}, err
	}
	service := &corev1.Service{ObjectMeta: name}
	if err := keep(ctx, r, parent, service, p.setService); err != nil {
		return ctrl.Result{}, err
	}
	nodes, err := r.nodes(ctx, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.report(ctx, p, deployment, nodes)
}

// child is a pointer to T.
type child[T any] interface {
	*T
	client.Object
}

// keep creates a child, or changes it if set changes a field of the stored one.
func keep[T any, C child[T]](ctx context.Context, r *reconciler, parent *Memcached, object C, set func(C)) error {
	want := func() error {
		set(object)
		return controllerutil.SetControllerReference(parent, object, r.Scheme())
	}
	if !r.byApply {
		_, err := controllerutil.CreateOrUpdate(ctx, r.Client, object, want)
		return err
	}
	name := client.ObjectKeyFromObject(object)
	err := r.Get(ctx, name, object)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil {
		stored := object.DeepCopyObject()
		if err := want(); err != nil {
			return err
		}
		if equality.Semantic.DeepEqual(stored, client.Object(object)) {
			return nil
		}
	}
	// The wanted fields alone.
	*object = *new(T)
	object.SetNamespace(name.Namespace)
	object.SetName(name.Name)
	if err := want(); err != nil {
		return err
	}
	kind, err := r.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	return r.Patch(ctx, object, client.Apply, client.FieldOwner(managedBy), client.ForceOwnership)
}

// nodes returns the names of the Pods that are not being deleted.
func (r *reconciler) nodes(ctx context.Context, p *pool) ([]string, error) {
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := r.List(ctx, pods, client.InNamespace(p.parent.Namespace), client.MatchingLabels(p.labels)); err != nil {
		return nil, err
	}
	names := []string{}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp.IsZero() {
			names = append(names, pods.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (r *reconciler) report(ctx context.Context, p *pool, deployment *appsv1.Deployment, nodes []string) error {
	before := p.parent.DeepCopy()
	p.setStatus(deployment, nodes)
	if equality.Semantic.DeepEqual(before.Status, p.parent.Status) {
		return nil
	}
	if err := r.writeStatus(ctx, p.parent); err != nil {
		return err
	}
	if p.size == 0 && readyMessage(before) != zeroRequested {
		r.events.Eventf(p.parent, nil, corev1.EventTypeNormal, "ScaledToZero", "Reconcile", zeroRequested)
	}
	return nil
}

func (r *reconciler) writeStatus(ctx context.Context, parent *Memcached) error {
	if !r.byApply {
		return r.Status().Update(ctx, parent)
	}
	applied := &Memcached{
		TypeMeta:   metav1.TypeMeta{APIVersion: groupVersion.String(), Kind: "Memcached"},
		ObjectMeta: metav1.ObjectMeta{Namespace: parent.Namespace, Name: parent.Name},
		Status:     parent.Status,
	}
	return r.Status().Patch(ctx, applied, client.Apply, client.FieldOwner(managedBy), client.ForceOwnership)
}
