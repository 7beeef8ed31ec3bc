// Package pki makes the certificates, keys and tokens of a cluster.
package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"innkeeper.dev/tests/controlplane/internal/files"
)

// TokensFile is the name of the static token file.
const TokensFile = "tokens.csv"

// Certificates outlive every use of a cluster directory, so there is no renewal.
const certificateLife = 10 * 365 * 24 * time.Hour

// identity is one user of the static token file.
type identity struct {
	user   string
	groups string // comma-separated
}

// Every component has an identity of its own, so that the audit log tells them
// apart. The users of controller manager and scheduler are those to which
// Kubernetes binds their roles.
var identities = map[string]identity{
	"admin":              {"admin", "system:masters"},
	"innkeeper":          {"innkeeper", ""},
	"controller-manager": {"system:kube-controller-manager", ""},
	"scheduler":          {"system:kube-scheduler", ""},
	"kwok":               {"kwok", "system:masters"},
	"kubelet":            {"system:node:real-1", "system:nodes"},
	"kube-proxy":         {"system:kube-proxy", ""},
	"coredns":            {"coredns", "system:masters"},
}

// Make writes the CA, the certificate of the API server, the service-account
// key pair and the static tokens into dir, unless they exist.
// It writes the tokens last, so their presence means completeness.
// serviceIP is the address of the Service kubernetes.
func Make(dir, serviceIP string) error {
	tokens := filepath.Join(dir, TokensFile)
	if _, err := os.Stat(tokens); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	ca, caKey, err := makeCA(dir, "ca")
	if err != nil {
		return fmt.Errorf("failed to make the CA: %w", err)
	}
	// Aggregated API servers must not accept a client's certificate as a
	// proxy's, so the front proxy has a CA of its own.
	frontCA, frontKey, err := makeCA(dir, "front-proxy-ca")
	if err != nil {
		return fmt.Errorf("failed to make the front proxy's CA: %w", err)
	}
	if err := makeCert(dir, "apiserver", ca, caKey, serverTemplate(serviceIP)); err != nil {
		return fmt.Errorf("failed to make the API server's certificate: %w", err)
	}
	if err := makeCert(dir, "kubelet-client", ca, caKey, clientTemplate("kube-apiserver-kubelet-client", "system:masters")); err != nil {
		return fmt.Errorf("failed to make the certificate for kubelets: %w", err)
	}
	if err := makeCert(dir, "front-proxy", frontCA, frontKey, clientTemplate("front-proxy")); err != nil {
		return fmt.Errorf("failed to make the front proxy's certificate: %w", err)
	}
	if err := makeServiceAccountKey(dir); err != nil {
		return fmt.Errorf("failed to make the service-account key: %w", err)
	}
	return writeTokens(tokens)
}

func makeCA(dir, name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "controlplane-" + name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := sign(template, template, key, key)
	if err != nil {
		return nil, nil, err
	}
	if err := writePair(dir, name, der, key); err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}

func makeCert(dir, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := sign(template, ca, key, caKey)
	if err != nil {
		return err
	}
	return writePair(dir, name, der, key)
}

func serverTemplate(serviceIP string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(serviceIP)},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
	}
}

func clientTemplate(name string, groups ...string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	// A clock that is set back a little must not make the certificates invalid.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(certificateLife)
	return x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
}

func writePair(dir, name string, der []byte, key *ecdsa.PrivateKey) error {
	if err := writePEM(filepath.Join(dir, name+".crt"), "CERTIFICATE", der); err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, name+".key"), "EC PRIVATE KEY", private)
}

func makeServiceAccountKey(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(filepath.Join(dir, "sa.key"), "EC PRIVATE KEY", private); err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, "sa.pub"), "PUBLIC KEY", public)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

func writeTokens(path string) error {
	var out bytes.Buffer
	for name, id := range identities {
		secret := make([]byte, 16)
		if _, err := rand.Read(secret); err != nil {
			return err
		}
		// token,user,uid[,"group,group"]; the uid is our own name of the identity.
		// An empty fourth field would mean a group without a name.
		fmt.Fprintf(&out, "%s,%s,%s", hex.EncodeToString(secret), id.user, name)
		if id.groups != "" {
			fmt.Fprintf(&out, ",%q", id.groups)
		}
		fmt.Fprintln(&out)
	}
	return files.Write(path, out.Bytes(), 0o600)
}

// ReadTokens returns the static tokens by the name of the identity.
func ReadTokens(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	tokens := map[string]string{}
	for line := range bytes.Lines(data) {
		fields := bytes.SplitN(bytes.TrimSpace(line), []byte(","), 4)
		if len(fields) < 3 {
			return nil, fmt.Errorf("%s has a line without three fields; remove the directory and start again", path)
		}
		tokens[string(fields[2])] = string(fields[0])
	}
	for name := range identities {
		if tokens[name] == "" {
			return nil, fmt.Errorf("%s has no token for %s; remove the directory and start again", path, name)
		}
	}
	return tokens, nil
}
