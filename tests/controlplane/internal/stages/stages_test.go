package stages

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kwok/pkg/utils/expression"
	"sigs.k8s.io/yaml"
)

// A running Pod with one container, as settled.
const running = `
spec: {containers: [{name: c}], restartPolicy: Always}
status:
  phase: Running
  containerStatuses: [{name: c, ready: true, restartCount: 0, state: {running: {}}}]
`

func evaluate(t *testing.T, program, document, annotations string) string {
	t.Helper()
	var pod corev1.Pod
	if err := yaml.Unmarshal([]byte(document), &pod); err != nil {
		t.Fatal(err)
	}
	var plain map[string]string
	if err := yaml.Unmarshal([]byte(annotations), &plain); err != nil {
		t.Fatal(err)
	}
	for key, value := range plain {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[AnnotationPrefix+key] = value
	}
	query, err := expression.NewQuery(jqDefinitions + program)
	if err != nil {
		t.Fatal(err)
	}
	result, err := query.Execute(context.Background(), &pod)
	if err != nil {
		t.Fatal(err)
	}
	if len(result) == 0 {
		return ""
	}
	return result[0].(string)
}

func TestStateOfAPod(t *testing.T) {
	job := "metadata: {ownerReferences: [{kind: Job}]}\n"
	onFailure := strings.Replace(running, "Always", "OnFailure", 1)
	never := strings.Replace(running, "Always", "Never", 1)
	restarted := strings.Replace(running, "restartCount: 0",
		"restartCount: 2, lastState: {terminated: {exitCode: 1}}", 1)
	for _, test := range []struct{ name, pod, annotations, want string }{
		{"new", "status: {phase: Pending}", "{}", "start"},
		{"new, start delayed", "status: {phase: Pending}", `{start-after: 1s}`, "waiting"},
		{"waiting", "status: {phase: Pending, containerStatuses: [{name: c}]}", `{start-after: 1s}`, "start"},
		{"new, ready delayed", "status: {phase: Pending}", `{ready-after: 1s}`, "start-unready"},
		{"job ignores ready-after", job + "spec: {restartPolicy: Never}\nstatus: {phase: Pending}", `{ready-after: 1s}`, "start"},
		{"settled", running, "{}", "steady"},
		{"unready asked", running, `{ready: "false"}`, "settle"},
		{"unready asked of another", running, `{ready.d: "false"}`, "steady"},
		{"own annotation wins", running, `{ready: "false", ready.c: "true"}`, "steady"},
		{"restarts asked", running, `{restart-count: "2"}`, "settle"},
		{"restarts seen", restarted, `{restart-count: "2"}`, "steady"},
		{"restart counts never sink", restarted, `{restart-count: "1"}`, "steady"},
		{"message changed", restarted, `{termination-message: "x"}`, "settle"},
		{"plain pods stay", never, "{}", "steady"},
		{"plain pods end when asked", never, `{complete-after: 1s}`, "complete"},
		{"servers never end", running, `{complete-after: 1s}`, "steady"},
		{"job completes", job + never, "{}", "complete"},
		{"job fails", job + never, `{exit-code: "1"}`, "complete"},
		{"job fails in place", job + onFailure, `{exit-code.c: "1"}`, "crash"},
		{"job recovers", job + onFailure, `{exit-code: "0"}`, "complete"},
		{"ended", "status: {phase: Failed}", "{}", "ended"},
		{"deleted", "metadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}\nstatus: {phase: Failed}", "{}", "delete"},
	} {
		if got := evaluate(t, podState, test.pod, test.annotations); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestDelays(t *testing.T) {
	unready := strings.Replace(running, "ready: true", "ready: false", 1)
	crashed := strings.Replace(running, "restartCount: 0", "restartCount: 1", 1)
	for _, test := range []struct{ name, program, pod, annotations, want string }{
		{"ready takes time", settleDelay, unready, `{ready-after: 5s}`, "5s"},
		{"unready does not", settleDelay, running, `{ready-after: 5s, ready: "false"}`, ""},
		{"restarts do not", settleDelay, running, `{ready-after: 5s, restart-count: "1"}`, ""},
		{"first crash", crashDelay, running, `{complete-after: 2s, restart-after: 3s}`, "2s"},
		{"first crash at once", crashDelay, running, `{}`, "0s"},
		{"next crash", crashDelay, crashed, `{complete-after: 2s, restart-after: 3s}`, "3s"},
		{"next crash by default", crashDelay, crashed, `{}`, "1s"},
	} {
		if got := evaluate(t, test.program, test.pod, test.annotations); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestEveryPodStateHasAStage(t *testing.T) {
	documents, err := Documents("v0.0.0")
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"waiting", "start", "start-unready", "settle", "complete", "crash", "delete"} {
		if !strings.Contains(string(documents), "name: pod-"+state+"\n") {
			t.Errorf("no stage for %s", state)
		}
	}
}
