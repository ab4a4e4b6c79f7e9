package extending_test
import ("testing";"time";"os";"strings";"strconv";"fmt";"github.com/eventproof/eventproof/verdict";"github.com/eventproof/eventproof/targets";"github.com/eventproof/eventproof/extending/shelf";"github.com/eventproof/eventproof/eventstore")
func TestTmp3(t *testing.T){
	n:=1
	if s:=os.Getenv("N");s!="" {n,_=strconv.Atoi(s)}
	none:=variant("promises-nothing",noVersionCheck); none.Promises=nil
	for _,tg:=range []targets.Target{gapAware(),sharded(),atLeastOnce(),moody(),forgetful(),lastCheckpointOnly(),withoutHead(),slowHeadless(),without(shelf.Target(),eventstore.GlobalOrder,eventstore.CompleteFeed),none}{
		if o:=os.Getenv("ONLY");o!="" && !strings.Contains(o,tg.Variant) {continue}
		for i:=range n { for _,sc:=range []string{"crowd-bank.yaml","crowd-auction.yaml"} {
		t.Run(fmt.Sprint(tg.Variant,"/",sc,i),func(t *testing.T){
			t.Parallel()
			tr:=run(t,tg,sc,uint64(i),time.Second)
			if tr.Problem!="" {t.Log("PROBLEM",tr.Problem)}
			t.Log("VIOLATED",tg.Variant,with(tr,verdict.Violated),"ERR",with(tr,verdict.Error),"INC",with(tr,verdict.Inconclusive),"NP",len(with(tr,verdict.NotPromised)),"NE",with(tr,verdict.NotExercised),"H",len(with(tr,verdict.Holds)))
			for _,s:=range with(tr,verdict.Violated,verdict.Error,verdict.Inconclusive) {t.Log(tell(tr,s))}
		})}}
	}
}
