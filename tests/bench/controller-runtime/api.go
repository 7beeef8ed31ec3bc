package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var groupVersion = schema.GroupVersion{Group: "cache.example.com", Version: "v1"}

// Memcached is the parent, with the fields that the job needs.
type Memcached struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MemcachedSpec   `json:"spec,omitempty"`
	Status MemcachedStatus `json:"status,omitempty"`
}

// MemcachedSpec is the spec of a parent; the API server has filled in the defaults.
type MemcachedSpec struct {
	Size          *int32           `json:"size,omitempty"`
	Image         string           `json:"image,omitempty"`
	ContainerPort int32            `json:"containerPort,omitempty"`
	Memcached     MemcachedOptions `json:"memcached,omitempty"`
}

// MemcachedOptions become command-line arguments of memcached.
type MemcachedOptions struct {
	MaxMemoryMB    int32  `json:"maxMemoryMB,omitempty"`
	MaxConnections int32  `json:"maxConnections,omitempty"`
	Threads        int32  `json:"threads,omitempty"`
	MaxItemSize    string `json:"maxItemSize,omitempty"`
}

// MemcachedStatus is the observed state.
type MemcachedStatus struct {
	Nodes              []string           `json:"nodes"`
	Replicas           int32              `json:"replicas"`
	ReadyReplicas      int32              `json:"readyReplicas"`
	Selector           string             `json:"selector"`
	Image              string             `json:"image"`
	ObservedGeneration int64              `json:"observedGeneration"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// MemcachedList is a list of parents.
type MemcachedList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Memcached `json:"items"`
}

func addToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(groupVersion, &Memcached{}, &MemcachedList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	return nil
}

// DeepCopyObject copies the parent, as code of controller-gen does.
func (in *Memcached) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopy copies the parent, as code of controller-gen does.
func (in *Memcached) DeepCopy() *Memcached {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if in.Spec.Size != nil {
		size := *in.Spec.Size
		out.Spec.Size = &size
	}
	out.Status.Nodes = append([]string(nil), in.Status.Nodes...)
	out.Status.Conditions = append([]metav1.Condition(nil), in.Status.Conditions...)
	return &out
}

// DeepCopyObject copies the list, as code of controller-gen does.
func (in *MemcachedList) DeepCopyObject() runtime.Object {
	out := *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Memcached, len(in.Items))
	for i := range in.Items {
		out.Items[i] = *in.Items[i].DeepCopy()
	}
	return &out
}
