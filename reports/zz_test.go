package reports
import ("testing";"time";"runtime";"fmt";"io"
"github.com/eventproof/eventproof/history";"github.com/eventproof/eventproof/eventstore")
type gen struct{ n, i, k int }
func (g *gen) Next() (history.Record, error) {
 if g.i>=g.n { return nil, io.EOF }
 i:=uint64(g.i+1); base:=int64(i)*1e5; var e eventstore.EventID; e[0]=byte(i);e[1]=byte(i>>8);e[2]=byte(i>>16);e[3]=1
 g.k++
 switch g.k {
 case 1: return &history.CallStart{Call:i,CommandID:fmt.Sprintf("c-1-%d",i),Session:uint32(i%64),Intended:base,Started:base+10},nil
 case 2: return &history.Read{Read:i,Call:i,Invoke:base+20,T:base+1000},nil
 case 3: return &history.Write{Write:i,Call:i,Stream:"s",Expected:i,Events:[]history.WriteEvent{{ID:e}},Decision:eventstore.Decision{Read:i}},nil
 case 4: return &history.Invoke{Attempt:i,Write:i,T:base+2000},nil
 case 5: return &history.Return{Attempt:i,T:base+50000,Outcome:eventstore.OK,Events:[]eventstore.EventID{e}},nil
 case 6: return &history.CallEnd{Call:i,T:base+60000,Result:history.ResultOK},nil
 case 7: return &history.LoggedEvent{ID:e,Stream:"s",Version:i,Type:"x",Meta:eventstore.Metadata{CommandID:fmt.Sprintf("c-1-%d",i)},Position:eventstore.Position{Minor:i}},nil
 case 8: return &history.Apply{Projection:"p",T:base+70000,Next:eventstore.Through(eventstore.Position{Minor:i}),Outcome:eventstore.OK},nil
 }
 g.k=0; g.i++
 return g.Next()
}
func TestZZ(t *testing.T){ s:=time.Now(); m,_:=Measure(&gen{n:50000}); var ms runtime.MemStats; runtime.ReadMemStats(&ms); t.Log(time.Since(s), m.Records, ms.Sys>>20, m.Metrics.LagS) }
