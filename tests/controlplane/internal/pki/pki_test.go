package pki

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
)

func TestServerCertificateIsValidForLoopbackAndService(t *testing.T) {
	dir := t.TempDir()
	if err := Make(dir, "10.96.0.1"); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "apiserver.crt"), filepath.Join(dir, "apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	for _, name := range []string{"127.0.0.1", "10.96.0.1", "localhost", "kubernetes.default.svc"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("not valid for %s: %v", name, err)
		}
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "elsewhere.example"}); err == nil {
		t.Error("valid for any name")
	}
}

func TestSecondMakeChangesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := Make(dir, "10.96.0.1"); err != nil {
		t.Fatal(err)
	}
	before, err := ReadTokens(filepath.Join(dir, TokensFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := Make(dir, "10.96.0.1"); err != nil {
		t.Fatal(err)
	}
	after, err := ReadTokens(filepath.Join(dir, TokensFile))
	if err != nil {
		t.Fatal(err)
	}
	if before["admin"] != after["admin"] || before["admin"] == before["innkeeper"] {
		t.Errorf("tokens changed or are not distinct: %v, then %v", before, after)
	}
}

func TestTokensThatAreIncompleteAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), TokensFile)
	for _, content := range []string{"", "abc\n", "abc,admin,admin,\"system:masters\"\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadTokens(path); err == nil {
			t.Errorf("accepted %q", content)
		}
	}
}
