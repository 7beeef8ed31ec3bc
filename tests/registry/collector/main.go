// Command collector is the OTLP receiver of the OpenTelemetry Collector: collector ADDRESS FILE.
//
// It prints a line once it listens, and adds the received traces to the file, as one JSON object per line.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	metrics "go.opentelemetry.io/otel/metric/noop"
	traces "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: collector ADDRESS FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(address, path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	protocols := map[string]any{"http": map[string]any{"endpoint": address}}
	settings := confmap.NewFromStringMap(map[string]any{"protocols": protocols})
	if err := settings.Unmarshal(config); err != nil {
		return err
	}
	marshaler := &ptrace.JSONMarshaler{}
	keep := func(_ context.Context, received ptrace.Traces) error {
		text, err := marshaler.MarshalTraces(received)
		if err != nil {
			return err
		}
		_, err = file.Write(append(text, '\n'))
		return err
	}
	sink, err := consumer.NewTraces(keep)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	created := receiver.Settings{
		ID: component.NewID(factory.Type()),
		TelemetrySettings: component.TelemetrySettings{
			Logger:         zap.NewNop(),
			TracerProvider: traces.NewTracerProvider(),
			MeterProvider:  metrics.NewMeterProvider(),
			Resource:       pcommon.NewResource(),
		},
	}
	server, err := factory.CreateTraces(ctx, created, config, sink)
	if err != nil {
		return err
	}
	if err := server.Start(ctx, host{}); err != nil {
		return err
	}
	fmt.Println("listening on", address)
	<-ctx.Done()
	return server.Shutdown(context.Background())
}

// host has no extensions.
type host struct{}

func (host) GetExtensions() map[component.ID]component.Component { return nil }
