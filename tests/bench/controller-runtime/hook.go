package main

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
)

// hook does the job as webhooks of Metacontroller, which sends a parent with
// its children and applies what the hook returns.
type hook struct {
	syncs atomic.Int64
}

// syncRequest has the fields of Metacontroller's request that the job needs.
type syncRequest struct {
	Parent   *Memcached `json:"parent"`
	Children struct {
		Deployments map[string]*appsv1.Deployment `json:"Deployment.apps/v1"`
	} `json:"children"`
	Related struct {
		Pods map[string]*metav1.PartialObjectMetadata `json:"Pod.v1"`
	} `json:"related"`
}

// serveHook answers at an address until a signal arrives, and returns the count of syncs.
func serveHook(address string) (func() int64, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	h := &hook{}
	mux := http.NewServeMux()
	mux.HandleFunc("/sync", answer(h.sync))
	mux.HandleFunc("/customize", answer(customize))
	server := &http.Server{Handler: mux}
	stop := ctrl.SetupSignalHandler()
	go func() {
		<-stop.Done()
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return nil, err
	}
	return h.syncs.Load, nil
}

func answer(of func(*syncRequest) (map[string]any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		request := &syncRequest{}
		err := json.NewDecoder(r.Body).Decode(request)
		if err == nil {
			var response map[string]any
			if response, err = of(request); err == nil {
				w.Header().Set("Content-Type", "application/json")
				err = json.NewEncoder(w).Encode(response)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

// sync returns the desired children and the status.
func (h *hook) sync(request *syncRequest) (map[string]any, error) {
	h.syncs.Add(1)
	parent := request.Parent
	p := newPool(parent)
	name := metav1.ObjectMeta{Name: parent.Name}
	deployment := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: *name.DeepCopy(),
	}
	p.setDeployment(deployment)
	service := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: name,
	}
	p.setService(service)
	seen := request.Children.Deployments[parent.Name]
	if seen == nil {
		seen = &appsv1.Deployment{}
	}
	nodes := []string{}
	for name, pod := range request.Related.Pods {
		if pod.DeletionTimestamp.IsZero() {
			nodes = append(nodes, name)
		}
	}
	slices.Sort(nodes)
	p.setStatus(seen, nodes)
	return map[string]any{"children": []any{deployment, service}, "status": parent.Status}, nil
}

// customize names the Pods, which Metacontroller then sends as related objects.
func customize(request *syncRequest) (map[string]any, error) {
	pods := map[string]any{
		"apiVersion": "v1",
		"resource":   "pods",
		"namespace":  request.Parent.Namespace,
		"labelSelector": map[string]any{
			"matchLabels": newPool(request.Parent).labels,
		},
	}
	return map[string]any{"relatedResources": []any{pods}}, nil
}
