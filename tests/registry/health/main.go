// Command health prints the health of an object, as deployment tools compute it: health SCRIPT < OBJECT.
//
// It reads an object as JSON, and prints its status by kstatus, which Flux and kpt use, and the table that a health script
// of Argo CD returns, as one JSON object.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: health SCRIPT < OBJECT")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(script string) error {
	var object unstructured.Unstructured
	if err := json.NewDecoder(os.Stdin).Decode(&object); err != nil {
		return fmt.Errorf("failed to parse the object: %w", err)
	}
	computed, err := status.Compute(&object)
	if err != nil {
		return fmt.Errorf("failed to compute the status: %w", err)
	}
	argo, err := evaluate(script, object.Object)
	if err != nil {
		return fmt.Errorf("failed to run %s: %w", script, err)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"kstatus": computed.Status,
		"argo":    argo,
	})
}

// evaluate runs a script with the libraries that Argo CD gives it, of which a health script needs the first alone.
func evaluate(script string, object map[string]any) (map[string]string, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	state.Push(state.NewFunction(lua.OpenBase))
	state.Call(0, 0)
	state.SetGlobal("obj", convert(state, object))
	if err := state.DoFile(script); err != nil {
		return nil, err
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return nil, fmt.Errorf("it returns %s instead of a table", state.Get(-1).Type())
	}
	return map[string]string{
		"status":  lua.LVAsString(table.RawGetString("status")),
		"message": lua.LVAsString(table.RawGetString("message")),
	}, nil
}

// convert returns a JSON value as a value of Lua.
func convert(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, item := range value {
			table.RawSetString(key, convert(state, item))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, item := range value {
			table.Append(convert(state, item))
		}
		return table
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	}
	return lua.LNil
}
