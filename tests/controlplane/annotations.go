package main

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"innkeeper.dev/tests/controlplane/internal/stages"
)

const (
	durationPattern = `([0-9]+(\\.[0-9]+)?(ms|s|m|h))+`
	numberPattern   = `[0-9]{1,3}`
	// Annotations that may carry a container's name behind a dot.
	containerPattern = `(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)?`
)

// annotationRules are the annotations below stages.AnnotationPrefix that the
// stages know, as CEL expressions on key and value.
var annotationRules = []string{
	annotationRule(`(start-after|ready-after|complete-after|restart-after|delete-after)`, durationPattern),
	annotationRule(`ready`+containerPattern, `(true|false)`),
	annotationRule(`(exit-code|restart-count)`+containerPattern, numberPattern),
	annotationRule(`termination-message`+containerPattern, `(?s).*`),
}

func annotationRule(key, value string) string {
	return fmt.Sprintf(`(k.matches('^%s%s$') && object.metadata.annotations[k].matches('^%s$'))`,
		strings.ReplaceAll(stages.AnnotationPrefix, ".", `\\.`), key, value)
}

// createAnnotationPolicy refuses Pods with annotations that the stages do not
// know or cannot read. kwok would ignore such an annotation silently.
func createAnnotationPolicy(ctx context.Context, client kubernetes.Interface) error {
	wrong := fmt.Sprintf(`object.metadata.?annotations.orValue({}).filter(k, k.startsWith('%s') && !(%s))`,
		stages.AnnotationPrefix, strings.Join(annotationRules, " || "))
	fail := admissionv1.Fail
	name := "annotations.controlplane.test"
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{
				ResourceRules: []admissionv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
						Rule: admissionv1.Rule{
							APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"},
						},
					},
				}},
			},
			Variables: []admissionv1.Variable{{Name: "wrong", Expression: wrong}},
			Validations: []admissionv1.Validation{{
				Expression: "size(variables.wrong) == 0",
				MessageExpression: `'unknown annotation or unreadable value: ' + variables.wrong.join(', ')` +
					` + '; tests/controlplane/README.md lists the known ones'`,
			}},
		},
	}
	policies := client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	if _, err := policies.Create(ctx, policy, metav1.CreateOptions{}); existsIsFine(err) != nil {
		return err
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	bindings := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	_, err := bindings.Create(ctx, binding, metav1.CreateOptions{})
	return existsIsFine(err)
}
