package extending_test
import ("testing";"time";"github.com/eventproof/eventproof/extending/shelf")
func TestTmp(t *testing.T){
	for _,sc:=range []string{"crowd-bank.yaml","crowd-auction.yaml"}{
	t0:=time.Now()
	tr:=run(t,shelf.Target(),sc,0,time.Second)
	t.Log(time.Since(t0),tr.DurationS,tr.StartNS)
	for _,p:=range tr.Phases {t.Log(p)}
	for _,f:=range tr.Faults {t.Log(f)}
	t.Logf("%+v",tr.Metrics.Commands)
	for _,v:=range tr.Verdicts {t.Log(v.Invariant,v.Verdict,v.Reason,v.Evidence)}
}}
