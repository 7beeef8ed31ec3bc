// Command registry is an OCI registry for tests, and a forward proxy in front of one. It does not depend on the product.
//
// Both listen on loopback, write their address to the file DIR/address, and append a line for every request to DIR/log.
// The content of a registry is in memory and is lost with the process.
package main

import (
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/registry"
)

const usage = `usage: registry serve --dir DIR [--address HOST:PORT] [--tls] [--user NAME:PASSWORD]
       registry proxy --dir DIR --to HOST:PORT`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	dir := flags.String("dir", "", "directory for the files address, log and, with --tls, ca.pem")
	address := flags.String("address", "127.0.0.1:0", "address to listen on")
	withTLS := flags.Bool("tls", false, "serve TLS, with a certificate of a new authority")
	user := flags.String("user", "", "require this NAME:PASSWORD")
	to := flags.String("to", "", "server that a proxy connects to for every request")
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	if *dir == "" {
		return errors.New(usage)
	}
	requests, err := os.OpenFile(filepath.Join(*dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var handler http.Handler
	switch arguments[0] {
	case "serve":
		handler = registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))
		if *user != "" {
			handler = private(handler, *user)
		}
	case "proxy":
		handler = proxy{to: *to}
	default:
		return errors.New(usage)
	}
	server := http.Server{Handler: logged(handler, log.New(requests, "", 0))}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return err
	}
	found := listener.Addr().String()
	if *withTLS {
		certificate, authority, err := certify()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(*dir, "ca.pem"), authority, 0o600); err != nil {
			return err
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}})
	}
	// Renamed into place: the test waits for the file and must not read half of it.
	written := filepath.Join(*dir, "address.new")
	if err := os.WriteFile(written, []byte(found), 0o600); err != nil {
		return err
	}
	if err := os.Rename(written, filepath.Join(*dir, "address")); err != nil {
		return err
	}
	return server.Serve(listener)
}

func logged(handler http.Handler, requests *log.Logger) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		requests.Println(request.Method, request.RequestURI)
		handler.ServeHTTP(writer, request)
	})
}

// private requires the name and the password.
func private(handler http.Handler, user string) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		name, password, _ := request.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(name+":"+password), []byte(user)) != 1 {
			writer.Header().Set("WWW-Authenticate", `Basic realm="tests"`)
			http.Error(writer, `{"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}`, http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(writer, request)
	})
}

// proxy sends tunnels (CONNECT) and requests with an absolute URL to one server.
type proxy struct{ to string }

func (p proxy) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	if request.Method == http.MethodConnect {
		p.tunnel(writer)
		return
	}
	if !request.URL.IsAbs() {
		http.Error(writer, "this is a proxy", http.StatusBadRequest)
		return
	}
	request.URL.Host = p.to
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	for name, values := range answer.Header {
		writer.Header()[name] = values
	}
	writer.WriteHeader(answer.StatusCode)
	io.Copy(writer, answer.Body)
}

func (p proxy) tunnel(writer http.ResponseWriter) {
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, buffered, err := http.NewResponseController(writer).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	io.WriteString(client, "HTTP/1.1 200 Connected\r\n\r\n")
	go func() {
		io.Copy(server, buffered)
		server.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(client, server)
}
