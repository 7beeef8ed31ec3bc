package main

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// setStatus sets the parent's status from the last known state of the
// Deployment.
func (p *pool) setStatus(deployment *appsv1.Deployment, nodes []string) {
	seen := &deployment.Status
	status := &p.parent.Status
	status.Nodes = nodes
	status.Replicas = seen.Replicas
	status.ReadyReplicas = seen.ReadyReplicas
	status.Selector = labels.SelectorFromSet(p.labels).String()
	status.Image = p.image
	status.ObservedGeneration = p.parent.Generation

	ready := fmt.Sprintf("%d of %d replicas are ready", seen.ReadyReplicas, p.size)
	allReady := fmt.Sprintf("all %d replicas are ready", p.size)
	p.setCondition("Available", seen.ReadyReplicas > 0, "Available", "Unavailable", ready)
	isStale := seen.ObservedGeneration < deployment.Generation
	if isStale {
		p.setCondition("Progressing", true, "Progressing", "", notSeen)
	} else if seen.UpdatedReplicas < p.size || seen.Replicas != p.size {
		message := fmt.Sprintf("%d of %d replicas are updated", seen.UpdatedReplicas, p.size)
		p.setCondition("Progressing", true, "Progressing", "", message)
	} else {
		message := fmt.Sprintf("all %d replicas are updated", p.size)
		p.setCondition("Progressing", false, "", "ProgressingComplete", message)
	}
	if isDegraded := seen.ReadyReplicas < p.size; isDegraded {
		p.setCondition("Degraded", true, "Degraded", "", ready)
	} else {
		p.setCondition("Degraded", false, "", "NotDegraded", allReady)
	}
	switch {
	case p.size == 0:
		p.setCondition("Ready", false, "", "NotReady", zeroRequested)
	case seen.ReadyReplicas == p.size:
		p.setCondition("Ready", true, "Ready", "", allReady)
	default:
		p.setCondition("Ready", false, "", "NotReady", ready)
	}
}

// notSeen is the message of Progressing while no controller has seen the
// Deployment.
const notSeen = "waiting for the Deployment to be updated"

const zeroRequested = "zero replicas are requested"

func (p *pool) setCondition(kind string, holds bool, whenTrue, whenFalse, message string) {
	condition := metav1.Condition{
		Type: kind, Status: metav1.ConditionFalse, Reason: whenFalse, Message: message,
		ObservedGeneration: p.parent.Generation,
	}
	if holds {
		condition.Status, condition.Reason = metav1.ConditionTrue, whenTrue
	}
	meta.SetStatusCondition(&p.parent.Status.Conditions, condition)
}

// readyMessage returns the message of the stored condition Ready.
func readyMessage(parent *Memcached) string {
	if ready := meta.FindStatusCondition(parent.Status.Conditions, "Ready"); ready != nil {
		return ready.Message
	}
	return ""
}
