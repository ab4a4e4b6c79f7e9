package history

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/eventproof/eventproof/eventstore"
)

// filled returns one record of every kind, each of its fields set to something that is not the zero value.
func filled(t testing.TB, seed uint64) []Record {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 1))
	var out []Record
	for k := KindTrial; k <= lastKind; k++ {
		rec := kindTable[k].make()
		if tr, ok := rec.(*Trial); ok {
			tr.Info = TrialInfo{Format: Format, Trial: "t1", Store: "memory", Seed: rnd.Uint64(),
				Promises: []eventstore.Promise{eventstore.Durable}, Projections: []ProjectionInfo{{Name: "balances"}}}
		} else {
			fill(t, rnd, reflect.ValueOf(rec).Elem())
		}
		out = append(out, rec)
	}
	return out
}

func fill(t testing.TB, rnd *rand.Rand, v reflect.Value) {
	t.Helper()
	switch v.Kind() { //nolint:exhaustive // the kinds that records have; the default notices a new one
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, rnd, v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(t, rnd, v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(t, rnd, v.Index(i))
		}
	case reflect.String:
		v.SetString(string(rune('a'+rnd.IntN(26))) + "é\"\n")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(1 + rnd.Uint64N(2)) // in every enumeration
	case reflect.Uint32:
		v.SetUint(1 + rnd.Uint64N(1<<32-1))
	case reflect.Uint64:
		v.SetUint(rnd.Uint64() | 1)
	case reflect.Int64:
		v.SetInt(-int64(rnd.Uint64()>>1) - 1)
	default:
		t.Fatalf("no sample for %s", v.Type())
	}
}

// newest returns the enumerators that eventstore would give next, to notice when one is added there.
func newest() []struct {
	of   *enumeration
	next string
} {
	return []struct {
		of   *enumeration
		next string
	}{
		{outcomes, eventstore.Outcome(len(outcomes.names)).String()},
		{reasons, eventstore.Reason(len(reasons.names)).String()},
		{results, Result(len(results.names)).String()},
		{processExits, ProcessExit(len(processExits.names)).String()},
		{biteForms, BiteForm(1 + len(biteForms.names)).String()},
		{landings, Landed(len(landings.names)).String()},
		{hows, How(1 + len(hows.names)).String()},
	}
}
