"""What a drawing holds, read back from its SVG."""

import xml.etree.ElementTree as ET

import pullback as pb

SVG = "{http://www.w3.org/2000/svg}"


def shapes(drawing: pb.Drawing, *classes: str) -> list[ET.Element]:
    """The elements that have all of these classes, outside of the legend."""
    root = ET.fromstring(drawing.svg)
    legend = {id(each) for group in root.iter(f"{SVG}g") if group.get("class") == "legend" for each in group.iter()}
    found = [each for each in root.iter() if set(classes) <= set(each.get("class", "").split())]
    return [each for each in found if id(each) not in legend]


def titles(drawing: pb.Drawing, *classes: str) -> list[str]:
    """What is shown when the mouse rests on each of these shapes."""
    return [each.find(f"{SVG}title").text for each in shapes(drawing, *classes)]


def texts(drawing: pb.Drawing) -> list[str]:
    """What is written, without titles."""
    found = ET.fromstring(drawing.svg).iter(f"{SVG}text")
    return ["".join([each.text or "", *(child.tail or "" for child in each)]) for each in found]
