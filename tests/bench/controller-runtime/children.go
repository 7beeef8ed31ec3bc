package main

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const (
	defaultImage = "memcached:1.6"
	managedBy    = "memcached-operator"
	portName     = "memcached"
	userID       = int64(11211)
)

// pool is the desired state of one parent. Its methods set single fields of an
// existing object. Defaults of the API server stay, so that an unchanged object
// compares as equal.
type pool struct {
	parent         *Memcached
	size           int32
	image          string
	labels         map[string]string
	workloadLabels map[string]string
}

func newPool(parent *Memcached) *pool {
	p := &pool{parent: parent, size: ptr.Deref(parent.Spec.Size, 1), image: parent.Spec.Image}
	if p.image == "" {
		p.image = defaultImage
	}
	p.labels = map[string]string{
		"app.kubernetes.io/name":       "memcached",
		"app.kubernetes.io/instance":   parent.Name,
		"app.kubernetes.io/component":  "cache",
		"app.kubernetes.io/managed-by": managedBy,
	}
	p.workloadLabels = map[string]string{}
	maps.Copy(p.workloadLabels, p.labels)
	if at := strings.LastIndexByte(p.image, ':'); at >= 0 {
		p.workloadLabels["app.kubernetes.io/version"] = p.image[at+1:]
	}
	return p
}

func (p *pool) setDeployment(d *appsv1.Deployment) {
	if d.Labels == nil {
		d.Labels = map[string]string{}
	}
	maps.Copy(d.Labels, p.workloadLabels)
	spec := &d.Spec
	spec.Replicas = &p.size
	// The API server refuses a change of the selector.
	if d.CreationTimestamp.IsZero() {
		spec.Selector = &metav1.LabelSelector{MatchLabels: p.labels}
	}
	spec.Strategy = appsv1.DeploymentStrategy{
		Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge:       ptr.To(intstr.FromInt32(1)),
			MaxUnavailable: ptr.To(intstr.FromInt32(0)),
		},
	}
	spec.Template.Labels = p.workloadLabels
	pod := &spec.Template.Spec
	pod.AutomountServiceAccountToken = ptr.To(false)
	pod.EnableServiceLinks = ptr.To(false)
	pod.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot:   ptr.To(true),
		RunAsUser:      ptr.To(userID),
		RunAsGroup:     ptr.To(userID),
		FSGroup:        ptr.To(userID),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if len(pod.Containers) != 1 {
		pod.Containers = make([]corev1.Container, 1)
	}
	p.setContainer(&pod.Containers[0])
}

func (p *pool) setContainer(c *corev1.Container) {
	options := &p.parent.Spec.Memcached
	c.Name = "memcached"
	c.Image = p.image
	c.Args = []string{
		"-m", strconv.Itoa(int(options.MaxMemoryMB)),
		"-c", strconv.Itoa(int(options.MaxConnections)),
		"-t", strconv.Itoa(int(options.Threads)),
		"-I", options.MaxItemSize,
	}
	c.Ports = []corev1.ContainerPort{{
		Name: portName, ContainerPort: p.parent.Spec.ContainerPort, Protocol: corev1.ProtocolTCP,
	}}
	c.Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("100m"),
		corev1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dMi", options.MaxMemoryMB+64)),
	}
	c.LivenessProbe = setProbe(c.LivenessProbe, 10, 10)
	c.ReadinessProbe = setProbe(c.ReadinessProbe, 5, 5)
	c.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		ReadOnlyRootFilesystem:   ptr.To(true),
		RunAsNonRoot:             ptr.To(true),
	}
}

func setProbe(probe *corev1.Probe, delay, period int32) *corev1.Probe {
	if probe == nil {
		probe = &corev1.Probe{}
	}
	probe.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromString(portName)}
	probe.InitialDelaySeconds = delay
	probe.PeriodSeconds = period
	probe.TimeoutSeconds = 3
	return probe
}

func (p *pool) setService(s *corev1.Service) {
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	maps.Copy(s.Labels, p.labels)
	s.Spec.ClusterIP = corev1.ClusterIPNone
	s.Spec.Selector = p.labels
	s.Spec.Ports = []corev1.ServicePort{{
		Name:       portName,
		Port:       p.parent.Spec.ContainerPort,
		TargetPort: intstr.FromString(portName),
		Protocol:   corev1.ProtocolTCP,
	}}
}
