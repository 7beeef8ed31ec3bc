// Package stages defines the behaviour of kwok for Nodes and Pods.
package stages

import (
	"bytes"
	"fmt"
	"strings"

	"sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/yaml"
)

// AnnotationPrefix begins the annotations that steer Pods; README.md lists them.
//
// kwok plays the kubelet: it watches Nodes and Pods and, whenever one changes,
// runs the stage whose selector matches. All Pod stages share one jq program,
// podState, that names the next stage, so exactly one can match and the whole
// state machine stands in one place:
//
//	Pending -> (waiting) -> start -> Running -> settle ... -> complete
//	                                        \-> crash (again and again)
//	any, when deleted -> delete
//
// A stage's delay counts from the last change of the Pod, because kwok weighs
// every change anew. That is also why a changed annotation takes effect at once.
const AnnotationPrefix = "controlplane.test/"

// jqDefinitions stand before every jq expression on a Pod.
//
//   - ann: an annotation as it applies to one container: its own before the Pod's.
//   - wanted and seen: the state of the containers in the annotations and in
//     the status. Restart counts only grow, as with a real kubelet.
//   - finite: the containers end by themselves.
//   - failing: some container ends with a code other than 0.
const jqDefinitions = `
def all_annotations: .metadata.annotations // {};
def ann($key): all_annotations["` + AnnotationPrefix + `" + $key];
def ann($key; $container): ann($key + "." + $container) // ann($key);
def restarts($container): [.status.containerStatuses[]? | select(.name == $container) | .restartCount] | add // 0;
def wanted: [.spec.containers[].name as $c
  | ([(ann("restart-count"; $c) // "0" | tonumber), restarts($c)] | max) as $restarts
  | {
      ready: (ann("ready"; $c) != "false"),
      restarts: $restarts,
      message: (if $restarts > 0 then ann("termination-message"; $c) // "" else "" end),
      code: (if $restarts > 0 then ann("exit-code"; $c) // "1" else "" end)
    }];
def seen: [.status.containerStatuses[]? | {
      ready: (.ready // false),
      restarts: (.restartCount // 0),
      message: (.lastState.terminated.message // ""),
      code: (if .lastState.terminated then (.lastState.terminated.exitCode // 0 | tostring) else "" end)
    }];
def finite: .spec.restartPolicy != "Always"
  and (ann("complete-after") != null or any(.metadata.ownerReferences[]?; .kind == "Job"));
def failing: [.spec.containers[].name as $c | ann("exit-code"; $c) // "0"] | any(. != "0");
`

const podState = `
if .metadata.deletionTimestamp then "delete"
elif .status.phase == "Pending" then
  if ann("start-after") != null and ((.status.containerStatuses // []) | length) == 0 then "waiting"
  elif ann("ready-after") != null and (finite | not) then "start-unready"
  else "start" end
elif .status.phase != "Running" then "ended"
elif wanted != seen then "settle"
elif (finite | not) then "steady"
elif .spec.restartPolicy == "OnFailure" and failing then "crash"
else "complete" end`

// Delays, as jq programs that give a duration or nothing.
const (
	startDelay  = `ann("start-after")`
	deleteDelay = `ann("delete-after")`
	// Only becoming ready takes time, everything else shows at once.
	settleDelay = `if (finite | not) and ([wanted[].ready] != [seen[].ready]) and all(wanted[]; .ready)
  then ann("ready-after") else null end`
	completeDelay = `ann("complete-after")`
	// The first crash comes when the container would have completed.
	crashDelay = `if ([.status.containerStatuses[].restartCount] | add) == 0
  then ann("complete-after") // "0s" else ann("restart-after") // "1s" end`
)

// templateDefinitions stand before every template of a Pod. The uid makes the
// API server refuse a patch for an earlier Pod of the same name, which is
// common with StatefulSets.
const templateDefinitions = `
{{ $now := Now }}{{ $root := . }}{{ $ann := default dict .metadata.annotations }}
{{ $p := "` + AnnotationPrefix + `" }}
metadata: {uid: {{ .metadata.uid | Quote }}}
`

const waitingTemplate = `
status:
  phase: Pending
  conditions:
  - {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
  - {type: ContainersReady, status: "False", reason: ContainersNotReady, lastTransitionTime: {{ $now | Quote }}}
  - {type: Ready, status: "False", reason: ContainersNotReady, lastTransitionTime: {{ $now | Quote }}}
  containerStatuses:
  {{ range .spec.containers }}
  - name: {{ .name | Quote }}
    image: {{ .image | Quote }}
    imageID: ""
    ready: false
    started: false
    restartCount: 0
    state: {waiting: {reason: ContainerCreating}}
  {{ end }}
`

// hold is true for the stage that starts a Pod which becomes ready later.
func startTemplate(hold bool) string {
	return fmt.Sprintf("{{ $hold := %t }}", hold) + conditionsTemplate + `
  startTime: {{ $now | Quote }}
  {{ with NodeIPsWith .spec.nodeName }}
  hostIP: {{ index . 0 | Quote }}
  hostIPs:
  {{ range . }}
  - ip: {{ . | Quote }}
  {{ end }}
  {{ end }}
  {{ with PodIPsWith .spec.nodeName (or .spec.hostNetwork false) (or .metadata.uid "") (or .metadata.name "") (or .metadata.namespace "") }}
  podIP: {{ index . 0 | Quote }}
  podIPs:
  {{ range . }}
  - ip: {{ . | Quote }}
  {{ end }}
  {{ end }}
  {{ with .spec.initContainers }}
  initContainerStatuses:
  {{ range . }}
  - name: {{ .name | Quote }}
    image: {{ .image | Quote }}
    imageID: ""
    ready: true
    restartCount: 0
    {{ if eq (or .restartPolicy "") "Always" }}
    started: true
    state: {running: {startedAt: {{ $now | Quote }}}}
    {{ else }}
    {{ $message := get $ann (printf "%stermination-message.%s" $p .name) }}
    state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}, message: {{ $message | Quote }}}}
    {{ end }}
  {{ end }}
  {{ end }}
` + runningContainersTemplate
}

func settleTemplate() string {
	return "{{ $hold := false }}" + conditionsTemplate + runningContainersTemplate
}

// conditionsTemplate begins the status of a running Pod.
const conditionsTemplate = `
{{ $ready := not $hold }}
{{ range .spec.containers }}
  {{ $own := get $ann (printf "%sready.%s" $p .name) }}
  {{ if eq (default (get $ann (print $p "ready")) $own) "false" }}{{ $ready = false }}{{ end }}
{{ end }}
status:
  phase: Running
  conditions:
  - {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
  {{ if $ready }}
  - {type: ContainersReady, status: "True", reason: "", message: "", lastTransitionTime: {{ $now | Quote }}}
  - {type: Ready, status: "True", reason: "", message: "", lastTransitionTime: {{ $now | Quote }}}
  {{ else }}
  - {type: ContainersReady, status: "False", reason: ContainersNotReady, message: "", lastTransitionTime: {{ $now | Quote }}}
  - {type: Ready, status: "False", reason: ContainersNotReady, message: "", lastTransitionTime: {{ $now | Quote }}}
  {{ end }}
  {{ range .spec.readinessGates }}
  - {type: {{ .conditionType | Quote }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
  {{ end }}
`

const runningContainersTemplate = `
  containerStatuses:
  {{ range $index, $item := .spec.containers }}
  {{ $old := dict }}
  {{ with $root.status.containerStatuses }}{{ $old = index . $index }}{{ end }}
  {{ $ready := default (get $ann (print $p "ready")) (get $ann (printf "%sready.%s" $p $item.name)) }}
  {{ $asked := int (default (get $ann (print $p "restart-count")) (get $ann (printf "%srestart-count.%s" $p $item.name))) }}
  {{ $restarts := max $asked (int (or $old.restartCount 0)) }}
  {{ $code := default (get $ann (print $p "exit-code")) (get $ann (printf "%sexit-code.%s" $p $item.name)) }}
  {{ $message := default (get $ann (print $p "termination-message")) (get $ann (printf "%stermination-message.%s" $p $item.name)) }}
  {{ $started := dig "state" "running" "startedAt" $now $old }}
  {{ if gt $restarts (int (or $old.restartCount 0)) }}{{ $started = $now }}{{ end }}
  - name: {{ $item.name | Quote }}
    image: {{ $item.image | Quote }}
    imageID: ""
    ready: {{ and (not $hold) (ne $ready "false") }}
    started: true
    restartCount: {{ $restarts }}
    state: {running: {startedAt: {{ $started | Quote }}}}
    {{ if gt $restarts 0 }}
    lastState:
      terminated:
        exitCode: {{ default "1" $code }}
        reason: {{ if eq $code "0" }}Completed{{ else }}Error{{ end }}
        message: {{ $message | Quote }}
        startedAt: {{ dig "lastState" "terminated" "startedAt" $started $old | Quote }}
        finishedAt: {{ $started | Quote }}
    {{ end }}
  {{ end }}
`

// completeTemplate ends all containers; the Pod failed if one of them did.
const completeTemplate = `
{{ $failed := false }}
{{ range .spec.containers }}
  {{ $code := default (get $ann (print $p "exit-code")) (get $ann (printf "%sexit-code.%s" $p .name)) }}
  {{ if ne (default "0" $code) "0" }}{{ $failed = true }}{{ end }}
{{ end }}
status:
  phase: {{ if $failed }}Failed{{ else }}Succeeded{{ end }}
  conditions:
  {{ $reason := "PodCompleted" }}{{ if $failed }}{{ $reason = "PodFailed" }}{{ end }}
  - {type: ContainersReady, status: "False", reason: {{ $reason }}, lastTransitionTime: {{ $now | Quote }}}
  - {type: Ready, status: "False", reason: {{ $reason }}, lastTransitionTime: {{ $now | Quote }}}
  containerStatuses:
  {{ range $index, $item := .spec.containers }}
  {{ $old := index $root.status.containerStatuses $index }}
  {{ $code := default "0" (default (get $ann (print $p "exit-code")) (get $ann (printf "%sexit-code.%s" $p $item.name))) }}
  {{ $message := default (get $ann (print $p "termination-message")) (get $ann (printf "%stermination-message.%s" $p $item.name)) }}
  - name: {{ $item.name | Quote }}
    image: {{ $item.image | Quote }}
    imageID: ""
    ready: false
    started: false
    restartCount: {{ or $old.restartCount 0 }}
    state:
      terminated:
        exitCode: {{ $code }}
        reason: {{ if eq $code "0" }}Completed{{ else }}Error{{ end }}
        message: {{ $message | Quote }}
        startedAt: {{ dig "state" "running" "startedAt" $now $old | Quote }}
        finishedAt: {{ $now | Quote }}
    {{ with $old.lastState }}
    lastState: {{ . | toJson }}
    {{ end }}
  {{ end }}
`

// crashTemplate restarts the failing containers in place, as a kubelet does
// with the restart policy OnFailure; the Job counts these restarts.
const crashTemplate = `
status:
  containerStatuses:
  {{ range $index, $item := .spec.containers }}
  {{ $old := index $root.status.containerStatuses $index }}
  {{ $code := default "0" (default (get $ann (print $p "exit-code")) (get $ann (printf "%sexit-code.%s" $p $item.name))) }}
  {{ $message := default (get $ann (print $p "termination-message")) (get $ann (printf "%stermination-message.%s" $p $item.name)) }}
  {{ if eq $code "0" }}
  - {{ $old | toJson }}
  {{ else }}
  - name: {{ $item.name | Quote }}
    image: {{ $item.image | Quote }}
    imageID: ""
    ready: {{ $old.ready }}
    started: true
    restartCount: {{ add 1 (or $old.restartCount 0) }}
    state: {running: {startedAt: {{ $now | Quote }}}}
    lastState:
      terminated:
        exitCode: {{ $code }}
        reason: Error
        message: {{ $message | Quote }}
        startedAt: {{ dig "state" "running" "startedAt" $now $old | Quote }}
        finishedAt: {{ $now | Quote }}
  {{ end }}
  {{ end }}
`

// nodeTemplate makes a Node ready, with room for everything; its argument is
// the version of Kubernetes.
const nodeTemplate = `
{{ $now := Now }}
status:
  phase: Running
  conditions:
  {{ range NodeConditions }}
  - type: {{ .type | Quote }}
    status: {{ .status | Quote }}
    reason: {{ .reason | Quote }}
    message: {{ .message | Quote }}
    lastHeartbeatTime: {{ $now | Quote }}
    lastTransitionTime: {{ $now | Quote }}
  {{ end }}
  addresses:
  - {type: InternalIP, address: {{ NodeIP | Quote }}}
  - {type: Hostname, address: {{ .metadata.name | Quote }}}
  allocatable: {cpu: 1k, memory: 1Ti, pods: 1M, ephemeral-storage: 1Ti}
  capacity: {cpu: 1k, memory: 1Ti, pods: 1M, ephemeral-storage: 1Ti}
  nodeInfo:
    architecture: amd64
    bootID: ""
    containerRuntimeVersion: kwok://0.8.0
    kernelVersion: kwok
    kubeProxyVersion: ""
    kubeletVersion: %s
    machineID: ""
    operatingSystem: linux
    osImage: kwok
    systemUUID: ""
`

// Documents returns kwok's configuration: all Stage objects as YAML documents.
func Documents(kubernetesVersion string) ([]byte, error) {
	list := []v1alpha1.Stage{
		patchStage("Node", "node-ready", `.status.conditions[]? | select(.type == "Ready") | .status`,
			v1alpha1.SelectorOpNotIn, "True", fmt.Sprintf(nodeTemplate, kubernetesVersion)),
		podStage("waiting", waitingTemplate, ""),
		podStage("start", startTemplate(false), startDelay),
		podStage("start-unready", startTemplate(true), startDelay),
		podStage("settle", settleTemplate(), settleDelay),
		podStage("complete", completeTemplate, completeDelay),
		podStage("crash", crashTemplate, crashDelay),
		podStage("delete", "", deleteDelay),
	}
	var out bytes.Buffer
	for _, stage := range list {
		document, err := yaml.Marshal(stage)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(document)
	}
	return out.Bytes(), nil
}

// podStage is a stage for Pods of that state; without a template it deletes.
func podStage(state, template, delay string) v1alpha1.Stage {
	if template != "" {
		template = templateDefinitions + template
	}
	stage := patchStage("Pod", "pod-"+state, jqDefinitions+podState, v1alpha1.SelectorOpIn, state, template)
	if template == "" {
		stage.Spec.Steps = []v1alpha1.StageStep{{Delete: true}}
	}
	if delay != "" {
		var none int64
		stage.Spec.Delay = &v1alpha1.StageDelay{
			DurationMilliseconds: &none,
			DurationFrom: &v1alpha1.ExpressionFrom{
				JQ: &v1alpha1.ExpressionJQ{Expression: jqDefinitions + delay},
			},
		}
	}
	return stage
}

func patchStage(kind, name, jq string, operator v1alpha1.SelectorOperator, value, template string) v1alpha1.Stage {
	stage := v1alpha1.Stage{}
	stage.APIVersion, stage.Kind, stage.Name = "kwok.x-k8s.io/v1alpha1", "Stage", name
	stage.Spec = v1alpha1.StageSpec{
		ResourceRef: v1alpha1.StageResourceRef{APIGroup: "v1", Kind: kind},
		Selector: &v1alpha1.StageSelector{MatchExpressions: []v1alpha1.MatchExpression{{
			JQ: &v1alpha1.SelectorJQ{Key: jq, Operator: operator, Values: []string{value}},
		}}},
		Steps: []v1alpha1.StageStep{{
			Patch: &v1alpha1.StagePatch{Subresource: "status", Template: strings.TrimSpace(template)},
		}},
	}
	return stage
}
