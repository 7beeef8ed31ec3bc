package main

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"innkeeper.dev/tests/controlplane/internal/files"
	"innkeeper.dev/tests/controlplane/internal/pki"
	"innkeeper.dev/tests/controlplane/internal/ports"
)

// writeKubeconfigs writes a file for each user and each address of an API
// server, and one for each component. The files contain the CA and a token, so
// they can be moved.
func writeKubeconfigs(l layout, p ports.Ports) error {
	ca, err := os.ReadFile(l.pki("ca.crt"))
	if err != nil {
		return err
	}
	tokens, err := pki.ReadTokens(l.pki("tokens.csv"))
	if err != nil {
		return err
	}
	servers := map[string]int{apiserver1: p.APIServer, apiserver2: p.APIServer2, front: p.Front}
	for _, user := range []string{"admin", "innkeeper"} {
		for server, port := range servers {
			if err := writeKubeconfig(l.kubeconfig(user, server), user, tokens[user], ca, port); err != nil {
				return err
			}
		}
	}
	for _, user := range []string{"controller-manager", "scheduler", "kwok", "kubelet", "kube-proxy", "coredns"} {
		if err := writeKubeconfig(l.config("kubeconfig-"+user), user, tokens[user], ca, p.APIServer); err != nil {
			return err
		}
	}
	return nil
}

func writeKubeconfig(path, user, token string, ca []byte, port int) error {
	const cluster = "controlplane"
	config := api.NewConfig()
	config.Clusters[cluster] = &api.Cluster{
		Server:                   "https://" + ports.Loopback(port),
		CertificateAuthorityData: ca,
	}
	config.AuthInfos[user] = &api.AuthInfo{Token: token}
	config.Contexts[cluster] = &api.Context{Cluster: cluster, AuthInfo: user, Namespace: "default"}
	config.CurrentContext = cluster
	data, err := clientcmd.Write(*config)
	if err == nil {
		err = files.Write(path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("failed to write %s: %w", filepath.Base(path), err)
	}
	return nil
}

// adminConfig returns the administrator's client configuration for an API server.
func adminConfig(l layout, server string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", l.kubeconfig("admin", server))
	if err != nil {
		return nil, err
	}
	config.UserAgent = "controlplane"
	// Without the client's own rate limit, which would slow down the start.
	config.QPS = -1
	return config, nil
}
