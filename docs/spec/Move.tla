-------------------------------- MODULE Move --------------------------------
(***************************************************************************)
(* How a move sends the clients of one subject (a group or a topic) from   *)
(* one cluster to another, and why that cannot go wrong however operators, *)
(* clients and clusters stop, stall, die and come back.  The page        *)
(* docs/move-protocol.md describes the protocol, and how to read this.     *)
(*                                                                         *)
(* Each cluster is a REGISTER: a transactional writer that fences older    *)
(* ones.  An operator OPENS it (fences, reads to the end) and later        *)
(* COMMITS; if another has opened it in between, the commit fails and all  *)
(* that is left is to start over.  Between any two actions an operator may *)
(* pause for as long as it likes, or crash.                                *)
(*                                                                         *)
(* Clients are those that the records lead: all that are on the source.    *)
(* Those at home elsewhere take no notice of them, and are not modelled.   *)
(*                                                                         *)
(* A cluster that is away needs no variable: an action on it is just not   *)
(* taken.  Whoever needs both waits, whoever needs one goes ahead.         *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Operators,      \* processes that run steps of moves, also of the same move at once
    Clients,        \* names of clients; Sees says which clusters each can reach
    Moves,          \* of "P->B", "B->P", and "P->B again": another move the same way
    Unplanned,      \* clusters that an unplanned move may send clients to
    MaxGeneration,  \* bound: attempts
    MaxBeat,        \* bound: renewals of one attempt
    Off             \* guards that are switched off, to see what breaks without them

Clusters == {"P", "B"}
Other(c) == IF c = "P" THEN "B" ELSE "P"
Source(m) == IF m = "B->P" THEN "B" ELSE "P"
Target(m) == Other(Source(m))
Sees(client) == CASE client = "sees P" -> {"P"} [] client = "sees B" -> {"B"} [] OTHER -> Clusters
On(guard) == guard \notin Off

(* A record says: clients of this subject hold (1), were released (2), are *)
(* gone (3).  `to` is where they work on `released` and `gone`, and where  *)
(* they go back to when a hold lapses.  `by` is the move, `beat` counts    *)
(* renewals of the hold, `intent` is the progress `going` on the source.   *)
(* `stamp` is the order of the ids of unplanned moves: two of them can     *)
(* take one generation.                                                    *)
None == 0
Hold == 1
Released == 2
Gone == 3
Home == [generation |-> 0, rank |-> Gone, to |-> "P", by |-> "", beat |-> 0, stamp |-> 0,
         intent |-> FALSE]
Unread == [Home EXCEPT !.rank = None]

VARIABLES
    reg,        \* the highest record of each cluster's log
    owner,      \* who opened the register last and still wants to commit
    op,         \* operators: place in a step, and what they remember
    client,     \* clients: highest record read, and whether the hold has lapsed
    expired,    \* leases up to this number have run out, counted from when they were SENT
    outcome,    \* history: decisions that were committed in their home
    trusted     \* history: no decision was taken with a client at work on the source

vars == <<reg, owner, op, client, expired, outcome, trusted>>

Bigger(a, b) == IF a >= b THEN a ELSE b

(* Precedence: generation, then rank, then beat, then stamp.  Without the  *)
(* guard it is as before: hold wins over go within a generation.           *)
Weight(r) ==
    LET rank == IF On("rank") THEN r.rank ELSE IF r.rank = Hold THEN 4 ELSE r.rank
    IN  1000 * r.generation + 100 * rank + 10 * (IF r.rank = Hold THEN r.beat ELSE 0) + r.stamp
Highest(a, b) == IF Weight(a) >= Weight(b) THEN a ELSE b
Merged == Highest(reg["P"], reg["B"])

(* Leases in the order in which they were sent; 0 is none.                 *)
Lease(generation, beat) ==
    IF generation = 0 THEN 0 ELSE (generation - 1) * (MaxBeat + 1) + beat + 1

(* A hold is over when its newest beat has run out: by the clock that      *)
(* stamps it, that of the target.  Then only a new attempt holds again.    *)
(* The code looks at it within the transaction that renews, so the model   *)
(* takes both as one moment.                                               *)
IsOver(r) == r.rank = Hold /\ Lease(r.generation, r.beat) <= expired

-----------------------------------------------------------------------------
(* What an operator does to a register.                                    *)

(* `kept` is 1 + the beat of the last renewal that a go whose gate is open  *)
(* may count on, 0 without an open gate.                                   *)
Idle == [at |-> "idle", move |-> "", generation |-> 0, beat |-> 0, kept |-> 0,
         snap |-> [c \in Clusters |-> Unread]]

(* Who loses a register starts over: a go keeps the answer of its gate.    *)
StartsOver(p) == IF op[p].kept = 0 THEN Idle ELSE [op[p] EXCEPT !.at = "gate open", !.beat = 0]

(* What the operator read when it opened the register.  While it is the    *)
(* owner that is what is still there, so nothing has to be remembered.     *)
Seen(o, c) == IF On("fence") THEN reg[c] ELSE op[o].snap[c]

(* The register that an operator is to commit to next, "" if none.         *)
Needs(p) ==
    LET at == op[p].at
    IN  CASE at \in {"hold: target open", "hold: source written", "renew: target open",
                     "renew: both open", "decide: target open", "release: target open"}
               -> Target(op[p].move)
          [] at \in {"hold: both open", "renew: target written", "intent: source open",
                     "release: source open"} -> Source(op[p].move)
          [] at \in {"unplanned: P open", "catch up: P open"} -> "P"
          [] at \in {"unplanned: B open", "catch up: B open"} -> "B"
          [] OTHER -> ""

(* Who loses the register that it needs next can only start over, so it    *)
(* does so at once: fewer states, and nothing that it could still do is    *)
(* lost.                                                                   *)
Open(o, c, next) ==
    LET fenced == {p \in Operators \ {o} : On("fence") /\ Needs(p) = c}
    IN
    /\ owner' = [d \in Clusters |-> IF d = c THEN o ELSE IF owner[d] \in fenced THEN "" ELSE owner[d]]
    /\ op' = [p \in Operators |-> IF p \in fenced THEN StartsOver(p)
                                  ELSE IF p # o THEN op[p]
                                  ELSE IF On("fence") THEN next ELSE [next EXCEPT !.snap[c] = reg[c]]]
    /\ UNCHANGED <<reg, client, expired, outcome, trusted>>

MayCommit(o, c) == On("fence") => owner[c] = o

Commit(o, c, record) ==
    /\ MayCommit(o, c)
    /\ reg' = [reg EXCEPT ![c] = Highest(record, @)]
    /\ owner' = [owner EXCEPT ![c] = IF @ = o THEN "" ELSE @]
    /\ UNCHANGED <<client, expired>>

At(o, place) == op[o].at = place
Goes(o, next) == op' = [op EXCEPT ![o] = next]
Quietly == UNCHANGED <<outcome, trusted>>

(* Dead: the operator crashes, is fenced, or stops.  Or only a renewal of  *)
(* an open gate fails.                                                     *)
Crash(o) ==
    /\ op[o] # Idle
    /\ \/ Goes(o, Idle)
       \/ op[o].at \in {"renew: target open", "renew: both open", "renew: target written"}
          /\ Goes(o, StartsOver(o))
    /\ owner' = [c \in Clusters |-> IF owner[c] = o THEN "" ELSE owner[c]]
    /\ UNCHANGED <<reg, client, expired, outcome, trusted>>

-----------------------------------------------------------------------------
(* HOLD: opens both clusters, writes the source, then the target.          *)

Era == 2
NextGenerations(known) ==
    {g \in {known + 1} \cap 1..MaxGeneration : Unplanned = {} \/ g % Era # 0}

HoldOpensTarget(o, m) ==
    /\ At(o, "idle")
    /\ Open(o, Target(m), [Idle EXCEPT !.at = "hold: target open", !.move = m])

HoldOpensSource(o) ==
    /\ At(o, "hold: target open")
    /\ LET m == op[o].move
           both == Highest(Seen(o, Target(m)), reg[Source(m)])
       IN  /\ MayCommit(o, Target(m))
           /\ both.rank # Hold \/ (both.by = m /\ IsOver(both))
           /\ both.to = Source(m)
           /\ \E g \in NextGenerations(both.generation) :
                Open(o, Source(m), [op[o] EXCEPT !.at = "hold: both open", !.generation = g])

HoldRecord(o, intent) ==
    [generation |-> op[o].generation, rank |-> Hold, to |-> Source(op[o].move),
     by |-> op[o].move, beat |-> op[o].beat, stamp |-> 0, intent |-> intent]

HoldWritesSource(o) ==
    /\ At(o, "hold: both open")
    /\ Commit(o, Source(op[o].move), HoldRecord(o, FALSE))
    /\ Goes(o, [op[o] EXCEPT !.at = "hold: source written"])
    /\ Quietly

HoldWritesTarget(o) ==
    /\ At(o, "hold: source written")
    /\ Commit(o, Target(op[o].move), HoldRecord(o, FALSE))
    /\ Goes(o, [op[o] EXCEPT !.at = "ready"])
    /\ Quietly

-----------------------------------------------------------------------------
(* RENEW: a higher beat on the target, then on the source.  A repeated     *)
(* hold is the same, also of one on the source alone.  The source may be   *)
(* away; then the new beat is on the target alone, and nothing may be     *)
(* decided by it.  A go renews while it asks the gate, and after.          *)

OwnHold(r, m) == r.rank = Hold /\ r.by = m
SameAttempt(r, o) ==
    OwnHold(r, op[o].move) /\ (On("attempt") => r.generation = op[o].generation)

(* Enough of the lease is left: in the code, more than the transaction may *)
(* take before the broker aborts it, so that a process which pauses after  *)
(* it has looked at its clock cannot commit late.  Together that is: at    *)
(* the commit the lease has not run out.                                   *)
LeaseIsLeft(o) == expired < Lease(op[o].generation, op[o].kept - 1)

RenewOpensTarget(o, m) ==
    /\ LET known == Highest(reg[Target(m)], reg[Source(m)])
       IN  /\ At(o, "idle") \/ (At(o, "gate open") /\ m = op[o].move /\ SameAttempt(known, o))
           /\ OwnHold(known, m)
           /\ On("ended") => ~IsOver(known)
           /\ known.beat < MaxBeat
           /\ Open(o, Target(m), [op[o] EXCEPT !.at = "renew: target open", !.move = m,
                                  !.generation = known.generation, !.beat = known.beat + 1])

RenewOpensSource(o) ==
    /\ At(o, "renew: target open")
    /\ MayCommit(o, Target(op[o].move))
    /\ LET at == reg[Source(op[o].move)]
       IN  /\ Weight(at) < Weight(HoldRecord(o, FALSE))
           /\ at.rank = Hold => at.generation = op[o].generation
           /\ Open(o, Source(op[o].move), [op[o] EXCEPT !.at = "renew: both open"])

(* An open gate counts on the renewal if the one before it still held all  *)
(* clients when the source took it: a chain of leases without a gap.       *)
Renewed(o) ==
    IF op[o].kept = 0 THEN [op[o] EXCEPT !.at = "ready"]
    ELSE IF On("chain") => LeaseIsLeft(o)
    THEN [op[o] EXCEPT !.at = "gate open", !.kept = op[o].beat + 1, !.beat = 0]
    ELSE StartsOver(o)

RenewWritesTarget(o) ==
    /\ op[o].at \in {"renew: target open", "renew: both open"}
    /\ On("ended") => ~IsOver(reg[Target(op[o].move)])
    /\ Commit(o, Target(op[o].move), HoldRecord(o, FALSE))
    /\ Goes(o, IF At(o, "renew: both open") THEN [op[o] EXCEPT !.at = "renew: target written"]
               ELSE IF On("beat on source") THEN StartsOver(o)
               ELSE Renewed(o))
    /\ Quietly

RenewWritesSource(o) ==
    /\ At(o, "renew: target written")
    /\ LET at == Seen(o, Source(op[o].move))
           kept == On("intent is kept") /\ at.generation = op[o].generation /\ at.intent
       IN  Commit(o, Source(op[o].move), HoldRecord(o, kept))
    /\ Goes(o, Renewed(o))
    /\ Quietly

-----------------------------------------------------------------------------
(* GO: the operator has a beat of its own that the source has taken.  It   *)
(* asks the gate, writes its intent on the source, and decides on the      *)
(* target.  (Applying offsets is between asking and deciding; it does not  *)
(* touch these records.)                                                   *)

WorksOn(c) ==
    LET view == client[c].view
    IN  CASE view.rank = None -> "nothing"
          [] view.rank = Hold /\ ~client[c].lapsed -> "held"
          [] OTHER -> IF view.to \in Sees(c) THEN view.to ELSE "nothing"

GateIsOpen(source) == \A c \in Clients : WorksOn(c) # source

AskTheGate(o) ==
    /\ At(o, "ready")
    /\ GateIsOpen(Source(op[o].move))
    /\ Goes(o, [op[o] EXCEPT !.at = "gate open", !.kept = op[o].beat + 1, !.beat = 0])
    /\ UNCHANGED <<reg, owner, client, expired>> /\ Quietly

IntentOpens(o) ==
    /\ At(o, "gate open")
    /\ Open(o, Source(op[o].move), [op[o] EXCEPT !.at = "intent: source open"])

GoneRecord(r, m) == [r EXCEPT !.rank = Gone, !.to = Target(m), !.beat = 0, !.intent = FALSE]

IntentWrites(o) ==
    /\ At(o, "intent: source open")
    /\ LET m == op[o].move
           at == Seen(o, Source(m))
       IN  /\ SameAttempt(at, o)
           /\ Commit(o, Source(m), IF ~On("target first") THEN GoneRecord(at, m)
                                   ELSE [at EXCEPT !.intent = On("intent")])
    /\ Goes(o, [op[o] EXCEPT !.at = "intended"])
    /\ Quietly

DecisionOpens(o) ==
    /\ At(o, "intended")
    /\ Open(o, Target(op[o].move), [op[o] EXCEPT !.at = "decide: target open"])

(* No client is at work on the source, but for those whom a later attempt  *)
(* has sent there: this decision is not for them.                          *)
NobodyIsBack(m, generation) ==
    \A c \in Clients : WorksOn(c) = Source(m) => client[c].view.generation > generation

Decides(o) ==
    /\ At(o, "decide: target open")
    /\ LET m == op[o].move
           at == Seen(o, Target(m))
           record == GoneRecord(at, m)
       IN  /\ SameAttempt(at, o)
           /\ On("lease") => LeaseIsLeft(o)
           /\ Commit(o, Target(m), record)
           /\ outcome' = outcome \cup {[generation |-> record.generation, rank |-> Gone, to |-> Target(m), stamp |-> 0]}
           /\ trusted' = (trusted /\ NobodyIsBack(m, record.generation))
    /\ Goes(o, Idle)

-----------------------------------------------------------------------------
(* RELEASE: on the target if it answers (then no decision can follow), on  *)
(* the source alone if there is no intent (then no decision can precede).  *)

(* The hold to release.  The source may have it alone; the target is       *)
(* written all the same, so that it shuts out every go.                    *)
Held(m, c, at) == IF c = Target(m) THEN Highest(at, reg[Source(m)]) ELSE at

ReleaseMay(m, c, at) ==
    /\ OwnHold(Held(m, c, at), m)
    /\ c = Source(m) => ~at.intent

ReleaseOpens(o, m, c) ==
    /\ At(o, "idle")
    /\ ReleaseMay(m, c, reg[c])
    /\ Open(o, c, [Idle EXCEPT !.at = IF c = Target(m) THEN "release: target open"
                                      ELSE "release: source open", !.move = m])

ReleaseRecord(at) == [at EXCEPT !.rank = Released, !.beat = 0, !.intent = FALSE]

Releases(o) ==
    /\ op[o].at \in {"release: target open", "release: source open"}
    /\ LET m == op[o].move
           c == IF At(o, "release: target open") THEN Target(m) ELSE Source(m)
           at == Seen(o, c)
           held == Held(m, c, at)
       IN  /\ ReleaseMay(m, c, at)
           /\ Commit(o, c, ReleaseRecord(held))
           /\ outcome' = outcome \cup {[generation |-> held.generation, rank |-> Released, to |-> held.to, stamp |-> 0]}
    /\ Goes(o, Idle) /\ UNCHANGED trusted

-----------------------------------------------------------------------------
(* UNPLANNED MOVE: the source is away, the target alone decides.  What the *)
(* other cluster knows is unknown, so the generation is a later multiple   *)
(* of Era (by the clock), which planned attempts never reach.              *)
(* Another unplanned move to the other cluster may take the same one; of   *)
(* both the one with the higher stamp counts: by its id, in the same second*)

UnplannedGenerations(c) ==
    {g \in 1..MaxGeneration : IF On("clock") THEN g > reg[c].generation /\ g % Era = 0
                              ELSE g = reg[c].generation + 1}

Stamps(generation) ==
    IF On("stamp") THEN 1..2 \ {d.stamp : d \in {e \in outcome : e.generation = generation}} ELSE {0}

UnplannedOpens(o, c) ==
    /\ At(o, "idle")
    /\ \E g \in UnplannedGenerations(c) :
         Open(o, c, [Idle EXCEPT !.at = IF c = "P" THEN "unplanned: P open" ELSE "unplanned: B open",
                     !.generation = g])

UnplannedDecides(o) ==
    /\ op[o].at \in {"unplanned: P open", "unplanned: B open"}
    /\ \E s \in Stamps(op[o].generation) :
         LET c == IF At(o, "unplanned: P open") THEN "P" ELSE "B"
             g == op[o].generation
         IN  /\ Commit(o, c, [Home EXCEPT !.generation = g, !.to = c, !.by = "unplanned", !.stamp = s])
             /\ outcome' = outcome \cup {[generation |-> g, rank |-> Gone, to |-> c, stamp |-> s]}
    /\ Goes(o, Idle) /\ UNCHANGED trusted

-----------------------------------------------------------------------------
(* CATCH UP: what a cluster missed because it was away, or because the     *)
(* step died first, is written by the next step that runs, of any move.    *)
(* Only outcomes are carried over; a hold is written by its own move.      *)

CatchUpOpens(o, c) ==
    /\ At(o, "idle")
    /\ reg[Other(c)].rank # Hold /\ Weight(reg[Other(c)]) > Weight(reg[c])
    /\ Open(o, c, [Idle EXCEPT !.at = IF c = "P" THEN "catch up: P open" ELSE "catch up: B open"])

CatchesUp(o) ==
    /\ op[o].at \in {"catch up: P open", "catch up: B open"}
    /\ LET c == IF At(o, "catch up: P open") THEN "P" ELSE "B"
           known == reg[Other(c)]
       IN  /\ known.rank # Hold /\ Weight(known) > Weight(Seen(o, c))
           /\ Commit(o, c, known)
    /\ Goes(o, Idle) /\ Quietly

-----------------------------------------------------------------------------
(* CLIENTS keep the highest record they have read.  A client reads late,   *)
(* or never; from a cluster it cannot reach it reads nothing.              *)

View(r) == [r EXCEPT !.by = "", !.intent = FALSE]

Read(c, cluster) ==
    /\ Weight(reg[cluster]) > Weight(client[c].view) \/ client[c].view = Unread
    /\ client' = [client EXCEPT ![c] = [view |-> View(reg[cluster]), lapsed |-> FALSE]]
    /\ UNCHANGED <<reg, owner, op, expired>> /\ Quietly

(* A client counts from when it read the newest beat, which is after that  *)
(* beat was sent.  When its count has run out it reads the cluster it      *)
(* would go back to once more, to the end, and goes if nothing is newer.   *)
Lapse(c) ==
    LET view == client[c].view
    IN  /\ WorksOn(c) = "held"
        /\ Lease(view.generation, view.beat) <= expired
        /\ On("read before lapse") /\ view.to \in Sees(c) => Weight(reg[view.to]) <= Weight(view)
        /\ client' = [client EXCEPT ![c].lapsed = TRUE]
        /\ UNCHANGED <<reg, owner, op, expired>> /\ Quietly

Restart(c) ==
    /\ client[c].view # Unread
    /\ client' = [client EXCEPT ![c] = [view |-> Unread, lapsed |-> FALSE]]
    /\ UNCHANGED <<reg, owner, op, expired>> /\ Quietly

(* Time: the oldest lease that was sent and has not run out runs out.      *)
Sent ==
    {Lease(reg[c].generation, reg[c].beat) : c \in Clusters}
        \cup {Lease(op[o].generation, Bigger(op[o].beat + 1, op[o].kept) - 1) : o \in Operators}
        \cup {Lease(client[c].view.generation, client[c].view.beat) : c \in Clients}
TimePasses ==
    /\ \E lease \in Sent : lease > expired
    /\ expired' = expired + 1
    /\ UNCHANGED <<reg, owner, op, client>> /\ Quietly

-----------------------------------------------------------------------------
Init ==
    /\ reg = [c \in Clusters |-> Home]
    /\ owner = [c \in Clusters |-> ""]
    /\ op = [o \in Operators |-> Idle]
    /\ client = [c \in Clients |-> [view |-> View(Home), lapsed |-> FALSE]]
    /\ expired = 0
    /\ outcome = {}
    /\ trusted = TRUE

Step(o) ==
    \/ \E m \in Moves : HoldOpensTarget(o, m) \/ RenewOpensTarget(o, m)
    \/ \E m \in Moves, c \in Clusters : ReleaseOpens(o, m, c)
    \/ \E c \in Unplanned : UnplannedOpens(o, c)
    \/ \E c \in Clusters : CatchUpOpens(o, c)
    \/ HoldOpensSource(o) \/ HoldWritesTarget(o) \/ HoldWritesSource(o)
    \/ RenewOpensSource(o) \/ RenewWritesTarget(o) \/ RenewWritesSource(o)
    \/ AskTheGate(o) \/ IntentOpens(o) \/ IntentWrites(o) \/ DecisionOpens(o) \/ Decides(o)
    \/ Releases(o) \/ UnplannedDecides(o) \/ CatchesUp(o)

Next ==
    \/ \E o \in Operators : Step(o) \/ Crash(o)
    \/ \E c \in Clients : Lapse(c) \/ Restart(c) \/ \E cluster \in Sees(c) : Read(c, cluster)
    \/ TimePasses

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Operators)

-----------------------------------------------------------------------------
(* WHAT MUST HOLD, in every state that can be reached.                     *)

(* A decision is taken only while the gate is open: at that moment no      *)
(* client of the attempt is at work on the source.                         *)
DecidedOnlyWithTheGateOpen == trusted

(* One generation has one outcome: never both released and gone, never     *)
(* gone to two places, but for two unplanned moves, whose stamps differ.   *)
OneOutcome ==
    \A a, b \in outcome : a.generation = b.generation =>
        a = b \/ (a.stamp > 0 /\ b.stamp > 0 /\ a.stamp # b.stamp)

(* What was reported as gone stands: a client that sees both clusters ends *)
(* at the target, unless a later attempt, or a later decision of the same  *)
(* generation, has sent it elsewhere since.                                *)
GoneStands ==
    \A d \in outcome : d.rank = Gone =>
        \/ Merged.generation > d.generation
        \/ Merged.generation = d.generation /\ Merged.rank = Gone
             /\ (Merged.to = d.to \/ Merged.stamp > d.stamp)

(* No dead end: wherever both clusters together say hold, a release may    *)
(* run, and after it they say go.                                          *)
TheHoldCanBeEnded ==
    Merged.rank = Hold =>
        LET t == Target(Merged.by)
        IN  /\ ReleaseMay(Merged.by, t, reg[t])
            /\ Highest(ReleaseRecord(Held(Merged.by, t, reg[t])), reg[Other(t)]).rank # Hold

(* No client is sent to a target before that was decided there.            *)
NobodyGoesEarly ==
    \A c \in Clients : client[c].view.generation > 0 /\ client[c].view.rank = Gone =>
        [generation |-> client[c].view.generation, rank |-> Gone, to |-> client[c].view.to,
         stamp |-> client[c].view.stamp] \in outcome

(* A hold that is over is not renewed: a late step of its attempt holds    *)
(* no client again.                                                        *)
EndedHoldsEnd ==
    [][\A m \in Moves :
        LET t == Target(m)
        IN  OwnHold(reg[t], m) /\ IsOver(reg[t]) /\ reg'[t].generation = reg[t].generation
            => reg'[t].rank # Hold \/ reg'[t].beat = reg[t].beat]_vars

-----------------------------------------------------------------------------
(* No client is held for ever: when nobody renews (the bound on beats sees *)
(* to that), it works again sooner or later, even if every operator is     *)
(* dead.  Assumed: clients get to read and time passes.                    *)
FairClients ==
    /\ WF_vars(TimePasses)
    /\ \A c \in Clients : WF_vars(Lapse(c)) /\ WF_vars(\E cluster \in Sees(c) : Read(c, cluster))

FairSpec == Spec /\ FairClients
NobodyIsHeldForEver == \A c \in Clients : []<>(WorksOn(c) # "held")
=============================================================================
