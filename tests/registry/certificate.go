package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// names and addresses are the subjects of the certificate.
var (
	names     = []string{"localhost", "registry.test", "registry.example"}
	addresses = []net.IP{net.IPv4(127, 0, 0, 1)}
)

// certify creates an authority and a certificate signed by it; returns the certificate and the authority as PEM.
func certify() (tls.Certificate, []byte, error) {
	none := tls.Certificate{}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return none, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return none, nil, err
	}
	authority := template("authority of the tests")
	authority.IsCA = true
	authority.BasicConstraintsValid = true
	authority.KeyUsage = x509.KeyUsageCertSign
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey)
	if err != nil {
		return none, nil, err
	}
	server := template("registry of the tests")
	server.DNSNames = names
	server.IPAddresses = addresses
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, authority, &key.PublicKey, authorityKey)
	if err != nil {
		return none, nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authorityDER})
	return tls.Certificate{Certificate: [][]byte{serverDER}, PrivateKey: key}, text, nil
}

// template returns a certificate that is valid for a day. It starts an hour ago, because clocks differ.
func template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		serial = big.NewInt(1)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
	}
}
